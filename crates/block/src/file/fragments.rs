//! Limits the fragmentation of an image file: each shared block can split an extent.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::sys;

/// Minimum mean size of an extent in bytes.
const MEAN: u64 = 16 << 10;
/// Number of extents that is always allowed, for small images.
const FEW: u64 = 4096;

/// The number of extents of an image, counted now and then. It stays below one for each 16 KiB of
/// the image (or 4096). Sharing ends at half of that, as later writes to shared blocks can add more
/// extents.
#[derive(Debug)]
pub(super) struct Fragments {
    /// Number of extents at which sharing ends.
    limit: u64,
    /// Number of pairs that may be shared before the next count.
    left: AtomicU64,
}

impl Fragments {
    /// # Errors
    /// The size of the file is unknown.
    pub(super) fn of(file: &File) -> io::Result<Fragments> {
        Ok(Fragments {
            limit: (sys::size(file)? / MEAN).max(FEW) / 2,
            left: AtomicU64::new(0),
        })
    }

    /// Counts shared pairs.
    pub(super) fn add(&self, pairs: u64) {
        // A race loses counts, which is harmless: this is an estimate.
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(pairs), Relaxed);
    }

    /// Counts the extents if there can be too many by now. Returns the reason if no more may be
    /// shared.
    pub(super) fn too_many(&self, file: &File) -> Option<String> {
        if self.left.load(Relaxed) > 0 {
            return None;
        }
        // If they cannot be counted, sharing ends.
        let found = sys::extents(file).unwrap_or(u64::MAX);
        if found >= self.limit {
            return Some(format!(
                "the image has {found} extents; from {} on, blocks are copied instead of shared",
                self.limit
            ));
        }
        // A pair may split an extent in three, at its destination and at its source.
        let left = ((self.limit - found) / 4).max(self.limit / 64);
        self.left.store(left, Relaxed);
        None
    }
}
