//! The flushes of the device: their mean time, and one flush that several threads share.
//!
//! A thread that asks for a shared flush leads it, unless one is under way: then it waits for the
//! next, which begins after the thread's own writes have ended.

use std::sync::Arc;
use std::time::Duration;

use stetfs_sync::plain::{
    Condvar, Instant, Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::base::Base;
use crate::error::Result;
use crate::stats::{bump, nanos};

/// The flushes of the device.
pub(crate) struct FlushClock {
    base: Arc<Base>,
    state: Mutex<Shared>,
    changed: Condvar,
    /// The mean time of a flush with the writes of its commit, over the last few, in nanoseconds.
    mean: AtomicU64,
}

/// The shared flushes.
#[derive(Default)]
struct Shared {
    /// Number of the flush that began last.
    begun: u64,
    /// Number of the last flush that ended without error.
    ended: u64,
    running: bool,
}

/// A moment in the sequence of a journal's shared flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushMark(u64);

impl FlushClock {
    pub(super) fn new(base: Arc<Base>) -> FlushClock {
        FlushClock {
            base,
            state: Mutex::default(),
            changed: Condvar::new(),
            mean: AtomicU64::new(0),
        }
    }

    /// Whether commits and checkpoints flush.
    pub(super) fn has_barrier(&self) -> bool {
        let config = &self.base.config;
        config.barrier && !config.canary.no_barrier
    }

    /// Flushes the device, if barriers are on.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn flush(&self) -> Result<()> {
        self.timed(|barrier| match barrier {
            true => Ok(self.base.device.flush()?),
            false => Ok(()),
        })
    }

    /// Runs `sync`, which makes something durable and is told whether barriers are on. If so, its
    /// time counts into the mean.
    ///
    /// # Errors
    /// The errors of `sync`.
    pub(super) fn timed(&self, sync: impl FnOnce(bool) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let barrier = self.has_barrier();
        sync(barrier)?;
        if barrier {
            self.note(begun.elapsed());
        }
        Ok(())
    }

    fn note(&self, took: Duration) {
        let mean = self.mean.load(Ordering::Relaxed);
        let took = nanos(took);
        let mean = match mean {
            0 => took,
            _ => mean - mean / 8 + took / 8,
        };
        self.mean.store(mean, Ordering::Relaxed);
    }

    /// The mean time of a flush with the writes of its commit.
    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean.load(Ordering::Relaxed))
    }

    /// A mark of now: earlier writes are durable once a flush that begins after it has ended.
    pub(crate) fn mark(&self) -> FlushMark {
        FlushMark(self.state.lock().begun)
    }

    /// Whether writes before `mark` are durable.
    pub(crate) fn is_flushed(&self, mark: FlushMark) -> bool {
        self.state.lock().ended > mark.0
    }

    /// Makes writes before the call durable, with a flush that other threads may share.
    ///
    /// # Errors
    /// The device's; the journal has then stopped.
    pub(crate) fn flush_shared(&self) -> Result<()> {
        let base = &*self.base;
        let canary = &base.config.canary;
        let mut s = self.state.lock();
        // A flush under way may have begun before this thread's writes ended.
        let need = s.begun + u64::from(!s.running || !canary.join_running_flush);
        while s.ended < need {
            if s.running {
                self.changed.wait(&mut s);
                base.check()?;
                continue;
            }
            s.begun += 1;
            s.running = true;
            let mine = s.begun;
            drop(s);
            let flushed = self.flush();
            bump(&base.counters.file_flushes, 1);
            if let Err(e) = &flushed {
                base.stop(Some(e.clone()));
            }
            s = self.state.lock();
            s.running = false;
            if flushed.is_ok() {
                s.ended = mine;
            }
            self.changed.notify_all();
            flushed?;
        }
        drop(s);
        // A flush that failed in another thread may have dropped writes that this one was to make
        // durable.
        base.check()
    }
}
