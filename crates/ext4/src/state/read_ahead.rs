//! Read-ahead: which blocks of a file are read before a reader asks for them.

use stetfs_sync::timed::atomic::{AtomicU64, Ordering};

/// The first and the largest read-ahead window, bytes. A window doubles until it reaches the
/// largest.
const AHEAD: (u64, u64) = (32 << 10, 512 << 10);

/// The read-ahead state of one file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// End of the last read, bytes.
    next: AtomicU64,
    /// End of what was read ahead, bytes.
    upto: AtomicU64,
    /// Size of the last read-ahead window, bytes.
    window: AtomicU64,
}

impl ReadAhead {
    /// Notes a read and returns whether it continues the last one. Racing readers may confuse the
    /// state, which costs only speed.
    pub(crate) fn follow(&self, from: u64, to: u64) -> bool {
        let in_order = self.next.swap(to, Ordering::Relaxed) == from;
        if !in_order {
            self.window.store(0, Ordering::Relaxed);
            self.upto.store(0, Ordering::Relaxed);
        }
        in_order
    }

    /// The bytes to read ahead now, for a reader that wants data up to `to`.
    pub(crate) fn more(&self, to: u64) -> Option<(u64, u64)> {
        let upto = self.upto.load(Ordering::Relaxed).max(to);
        let window = self.window.load(Ordering::Relaxed);
        // Half a window is still ahead of the reader.
        if upto - to > window / 2 {
            return None;
        }
        let window = (window * 2).clamp(AHEAD.0, AHEAD.1);
        self.window.store(window, Ordering::Relaxed);
        self.upto.store(upto + window, Ordering::Relaxed);
        Some((upto, upto + window))
    }
}
