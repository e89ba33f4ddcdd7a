//! A device that lets writes to some bytes, or flushes, wait.

use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use stetfs_block::{BlockDevice, MemDevice, Read, Result, Stats, Write};

pub struct Gate {
    pub inner: MemDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Writes to these bytes wait.
    shut: Option<Range<u64>>,
    /// Flushes wait.
    holds_flushes: bool,
    /// Those that wait.
    waiting: usize,
    flushes: usize,
}

impl Gate {
    pub fn new(inner: MemDevice) -> Gate {
        Gate {
            inner,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    pub fn shut(&self, bytes: Range<u64>) {
        self.set(|s| s.shut = Some(bytes));
    }

    pub fn hold_flushes(&self) {
        self.set(|s| s.holds_flushes = true);
    }

    pub fn open(&self) {
        self.set(|s| (s.shut, s.holds_flushes) = (None, false));
    }

    /// Flushes that were begun.
    pub fn flushes(&self) -> usize {
        self.state.lock().unwrap().flushes
    }

    /// Waits until so many wait.
    pub fn await_waiting(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let long = Duration::from_secs(20);
        let wait = self
            .changed
            .wait_timeout_while(state, long, |s| s.waiting < count);
        assert!(wait.unwrap().0.waiting >= count, "nobody came");
    }

    fn pass(&self, holds: impl Fn(&State) -> bool) {
        let mut state = self.state.lock().unwrap();
        if holds(&state) {
            state.waiting += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |s| holds(s)).unwrap();
            state.waiting -= 1;
        }
    }
}

impl BlockDevice for Gate {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.pass(|s| {
            let shut = s.shut.clone().unwrap_or_default();
            writes
                .iter()
                .any(|w| w.offset < shut.end && shut.start < w.offset + w.len())
        });
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.set(|s| s.flushes += 1);
        self.pass(|s| s.holds_flushes);
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
