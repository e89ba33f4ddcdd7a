//! A region in memory.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use stetfs_block::Result;

use crate::region::check_flush;
use crate::words::{region_of_words, store};
use crate::{Durability, LINE, Region, WORD};

/// A region in memory, for tests. What a crash may lose is the
/// [`RegionRecorder`](crate::RegionRecorder)'s subject.
pub struct MemRegion {
    words: Box<[AtomicU64]>,
}

impl MemRegion {
    /// Zeros: `size` bytes, or as many more as the last line needs.
    pub fn new(size: u64) -> Self {
        let words = size.div_ceil(LINE) * (LINE / WORD);
        MemRegion {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A region that begins with a copy of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let region = Self::new(bytes.len() as u64);
        let stored = store(&region.words, 0, bytes);
        debug_assert!(stored.is_ok(), "it is as long as they are");
        region
    }

    /// A copy as it is now.
    pub fn fork(&self) -> Self {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Acquire));
        MemRegion {
            words: self.words.iter().map(copy).collect(),
        }
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let bytes = |word: &AtomicU64| word.load(Ordering::Acquire).to_ne_bytes();
        self.words.iter().flat_map(bytes).collect()
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

impl fmt::Debug for MemRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemRegion")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl Region for MemRegion {
    region_of_words!();

    fn durability(&self) -> Durability {
        Durability::Nothing
    }

    fn flush(&self, range: Range<u64>) -> Result<()> {
        check_flush(&range, self.size())
    }

    fn fence(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        Ok(())
    }
}
