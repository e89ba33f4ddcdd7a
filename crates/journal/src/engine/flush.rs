//! A device flush that several threads share: one leads, those that come meanwhile wait for the
//! next.

use super::Inner;
use crate::error::Result;
use crate::stats::bump;
use stetfs_sync::plain::{Condvar, Mutex, mended};

#[derive(Default)]
pub(crate) struct SharedFlush {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Flushes that began, and that ended.
    begun: u64,
    ended: u64,
    running: bool,
}

/// Whether a flush began since this was taken, and has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark(u64);

impl Inner {
    /// What was written before the mark is durable once a flush that begins after it has ended.
    pub(crate) fn flush_mark(&self) -> FlushMark {
        FlushMark(self.flushes.state.lock().begun)
    }

    /// Whether what was written before `mark` is durable.
    pub(crate) fn is_flushed(&self, mark: FlushMark) -> bool {
        self.flushes.state.lock().ended > mark.0
    }

    /// Makes durable what was written before the call, with a flush that others may share.
    ///
    /// # Errors
    /// The device's; the journal has stopped then.
    pub(crate) fn flush_shared(&self) -> Result<()> {
        let mut s = self.flushes.state.lock();
        // One that runs may have begun before our writes ended.
        let need = s.begun + u64::from(!s.running || mended("flush.next"));
        while s.ended < need {
            if s.running {
                self.flushes.changed.wait(&mut s);
                self.check()?;
                continue;
            }
            s.begun += 1;
            s.running = true;
            let mine = s.begun;
            drop(s);
            let flushed = self.flush();
            bump(&self.counters.file_flushes, 1);
            if let Err(e) = &flushed {
                self.stop(Some(e.clone()));
            }
            s = self.flushes.state.lock();
            s.running = false;
            if flushed.is_ok() {
                s.ended = mine;
            }
            self.flushes.changed.notify_all();
            flushed?;
        }
        drop(s);
        // One that failed elsewhere may have dropped what this one was to make durable.
        self.check()
    }
}
