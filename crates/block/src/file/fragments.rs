//! How far an image is in pieces: sharing blocks of it makes more of them.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::sys;

/// Mean bytes of an extent at least …
const MEAN: u64 = 16 << 10;
/// … in images that are not small.
const FEW: u64 = 4096;

/// Extents of an image, counted now and then. They stay below one for each 16 KiB of the image (or
/// 4096): sharing ends at half of that, for until what was shared has been written again, some
/// extents more can come of it.
#[derive(Debug)]
pub(super) struct Fragments {
    /// Sharing ends at so many.
    limit: u64,
    /// Pairs to be shared before they are counted again.
    left: AtomicU64,
}

impl Fragments {
    /// # Errors
    /// The file system does not say.
    pub(super) fn of(file: &File) -> io::Result<Fragments> {
        Ok(Fragments {
            limit: (sys::size(file)? / MEAN).max(FEW) / 2,
            left: AtomicU64::new(0),
        })
    }

    /// So many pairs were shared.
    pub(super) fn add(&self, pairs: u64) {
        // Only an estimate.
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(pairs), Relaxed);
    }

    /// Why no more may be shared, if so: counts the extents, if there can be too many.
    pub(super) fn too_many(&self, file: &File) -> Option<String> {
        if self.left.load(Relaxed) > 0 {
            return None;
        }
        // What cannot be counted is not trusted.
        let found = sys::extents(file).unwrap_or(u64::MAX);
        if found >= self.limit {
            return Some(format!(
                "the image is in {found} extents; from {} on, blocks are copied",
                self.limit
            ));
        }
        // A pair may split an extent in three, where it goes and where it comes from.
        let left = ((self.limit - found) / 4).max(self.limit / 64);
        self.left.store(left, Relaxed);
        None
    }
}
