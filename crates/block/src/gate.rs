//! A device whose writes can be held, for tests of waiting and ordering.

use std::ops::Range;
use std::time::Duration;

use stetfs_sync::timed::{Condvar, Mutex};

use crate::device::sharing_of;
use crate::device::{BlockDevice, Read, Write};
use crate::error::Result;
use crate::share::{Share, ShareLimits, SharePair};
use crate::stats::Stats;

/// A time in which any test's request comes.
const LONG: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    shut: bool,
    /// The bytes whose writes wait, while it is shut; none means everything.
    only: Option<Range<u64>>,
    /// Number of requests that wait.
    waiting: usize,
}

/// Passes everything to another device; while it is shut, writes and flushes wait. Reads never do.
pub struct Gate<D> {
    inner: D,
    state: Mutex<State>,
    changed: Condvar,
}

/// A shut gate: dropping it opens the gate.
pub struct Shut<'g, D>(&'g Gate<D>);

impl<D: BlockDevice> Gate<D> {
    /// An open gate.
    pub fn new(inner: D) -> Self {
        Gate {
            inner,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Shuts the gate for requests that come from now on.
    pub fn shut(&self) -> Shut<'_, D> {
        self.close(None)
    }

    /// Shuts the gate for writes to these bytes that come from now on. Other writes, and flushes,
    /// pass.
    pub fn shut_at(&self, bytes: Range<u64>) -> Shut<'_, D> {
        self.close(Some(bytes))
    }

    fn close(&self, only: Option<Range<u64>>) -> Shut<'_, D> {
        let mut state = self.state.lock();
        (state.shut, state.only) = (true, only);
        Shut(self)
    }

    fn pass(&self) {
        self.pass_with(|only| only.is_none());
    }

    /// Waits while the gate is shut for a request; `concerns` gets the bytes that it is shut for.
    fn pass_with(&self, concerns: impl Fn(Option<&Range<u64>>) -> bool) {
        let mut state = self.state.lock();
        if !state.shut || !concerns(state.only.as_ref()) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.shut {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

impl<D> Shut<'_, D> {
    /// Waits until a request waits at the gate.
    ///
    /// # Panics
    /// If none comes in time: the waiting test has failed.
    pub fn await_one(&self) {
        let mut state = self.0.state.lock();
        while state.waiting == 0 {
            let late = self.0.changed.wait_for(&mut state, LONG).timed_out();
            assert!(!late || state.waiting > 0, "no request came");
        }
    }
}

impl<D> Drop for Shut<'_, D> {
    fn drop(&mut self) {
        self.0.state.lock().shut = false;
        self.0.changed.notify_all();
    }
}

impl<D: BlockDevice> BlockDevice for Gate<D> {
    crate::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.pass_with(|only| {
            only.is_none_or(|only| {
                let touches =
                    |w: &Write<'_>| w.offset < only.end && only.start < w.offset + w.len();
                writes.iter().any(touches)
            })
        });
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.pass();
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.pass();
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Share for Gate<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        self.pass();
        sharing_of(&self.inner)?.share_batch(pairs)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::mem::MemDevice;

    #[test]
    fn a_write_waits_until_the_gate_opens() {
        let gate = Gate::new(MemDevice::new(4096));
        std::thread::scope(|scope| {
            let shut = gate.shut();
            let (written, is_written) = channel();
            let gate = &gate;
            scope.spawn(move || {
                gate.write(0, &[7; 512]).unwrap();
                written.send(()).unwrap();
            });
            shut.await_one();
            let mut bytes = [0; 512];
            gate.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 512]);
            assert!(is_written.try_recv().is_err());
            drop(shut);
            is_written.recv().unwrap();
            gate.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [7; 512]);
        });
    }
}
