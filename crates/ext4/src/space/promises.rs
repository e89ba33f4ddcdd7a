//! The blocks that are promised to records of files for a recovery (`redo`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_journal::Stamp;
use stetfs_sync::{Mutex, Rank};

/// What records that live are promised, in the order in which they were written.
pub(super) struct RedoPromises {
    /// Each with the stamp of its record.
    pub(super) promises: Mutex<VecDeque<(Stamp, u64)>>,
    /// Their sum, clusters.
    pub(super) sum: AtomicU64,
}

impl RedoPromises {
    pub(super) fn new() -> RedoPromises {
        RedoPromises {
            promises: Mutex::new(Rank::InodeLeaf, VecDeque::new()),
            sum: AtomicU64::new(0),
        }
    }

    /// Clusters promised to records that live.
    pub(super) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}
