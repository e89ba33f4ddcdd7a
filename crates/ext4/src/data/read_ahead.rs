//! Which blocks of a file are read before somebody asks for them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Read-ahead begins with this many bytes, doubles, and ends there.
const AHEAD: (u64, u64) = (32 << 10, 512 << 10);

/// Where a file is being read.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// Where the last read ended, bytes.
    next: AtomicU64,
    /// Up to where blocks were read ahead, bytes.
    upto: AtomicU64,
    /// How much was read ahead last, bytes.
    window: AtomicU64,
}

impl ReadAhead {
    /// Notes a read and says whether it goes on where the last ended. Racing readers may confuse
    /// it, which costs speed only.
    pub(super) fn follow(&self, from: u64, to: u64) -> bool {
        let in_order = self.next.swap(to, Ordering::Relaxed) == from;
        if !in_order {
            self.window.store(0, Ordering::Relaxed);
            self.upto.store(0, Ordering::Relaxed);
        }
        in_order
    }

    /// Which bytes to read ahead now, for a reader that wants up to `to`.
    pub(super) fn more(&self, to: u64) -> Option<(u64, u64)> {
        let upto = self.upto.load(Ordering::Relaxed).max(to);
        let window = self.window.load(Ordering::Relaxed);
        // Half a window is still there.
        if upto - to > window / 2 {
            return None;
        }
        let window = (window * 2).clamp(AHEAD.0, AHEAD.1);
        self.window.store(window, Ordering::Relaxed);
        self.upto.store(upto + window, Ordering::Relaxed);
        Some((upto, upto + window))
    }
}
