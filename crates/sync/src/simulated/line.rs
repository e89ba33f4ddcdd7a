//! Cache lines: which cores have a copy, and since when the line is busy with transfers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The line of an atomic or of a lock's word. Only the thread that runs changes it, so relaxed
/// operations do.
///
/// A core that writes takes the line from all others, and one that reads gets a copy. Cores from
/// 128 on share their bits with those below.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The simulation that the rest belongs to: a static's line outlives simulations.
    of: AtomicU64,
    /// Cores that have a copy, as bits. None: nobody has touched it, and the first touch is free.
    copies: [AtomicU64; 2],
    /// Virtual time at which the last transfer ends.
    busy: AtomicU64,
    /// Of a lock: when it is handed to its first waiter next.
    fair: AtomicU64,
}

impl Line {
    pub(super) const fn new() -> Line {
        Line {
            of: AtomicU64::new(0),
            copies: [AtomicU64::new(0), AtomicU64::new(0)],
            busy: AtomicU64::new(0),
            fair: AtomicU64::new(0),
        }
    }

    /// When the lock is handed to its first waiter next.
    pub(super) fn fair(&self) -> u64 {
        self.fair.load(Relaxed)
    }

    pub(super) fn set_fair(&self, at: u64) {
        self.fair.store(at, Relaxed);
    }

    /// Its place in memory, which tells locks apart.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Whether `core` of the simulation `of` can access the line without a transfer. A first touch
    /// is noted.
    pub(super) fn is_here(&self, of: u64, core: usize, write: bool) -> bool {
        let (word, bit) = place(core);
        if self.of.load(Relaxed) != of {
            self.of.store(of, Relaxed);
            self.copies[1 - word].store(0, Relaxed);
            self.copies[word].store(bit, Relaxed);
            self.busy.store(0, Relaxed);
            self.fair.store(0, Relaxed);
            return true;
        }
        let mine = self.copies[word].load(Relaxed);
        match write {
            true => mine == bit && self.copies[1 - word].load(Relaxed) == 0,
            false => mine & bit != 0,
        }
    }

    /// The line comes to `core` at `now` or when its last transfer ends. Returns when it is there.
    pub(super) fn fetch(&self, core: usize, write: bool, now: u64, transfer: u64) -> u64 {
        let (word, bit) = place(core);
        if write {
            self.copies[1 - word].store(0, Relaxed);
            self.copies[word].store(bit, Relaxed);
        } else {
            self.copies[word].fetch_or(bit, Relaxed);
        }
        let here = self.busy.load(Relaxed).max(now) + transfer;
        self.busy.store(here, Relaxed);
        here
    }
}

fn place(core: usize) -> (usize, u64) {
    ((core / 64) % 2, 1 << (core % 64))
}
