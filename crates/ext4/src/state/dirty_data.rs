//! The dirty data of one file.

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_journal::Block;
use stetfs_sync::timed::Instant;
use stetfs_sync::{Mutex, Rank};

use crate::durability::DataLedger;
use crate::state::failures::Failures;

/// The dirty data of one file (data.D2, data.D3).
pub(crate) struct DirtyData {
    /// The write-back lock: held while blocks are written back, and while they are taken out to be
    /// dropped.
    pub(crate) write_back: Mutex<()>,
    pub(crate) ledger: Mutex<DataLedger>,
    /// Write-backs that failed.
    pub(crate) failures: Failures,
}

impl Default for DirtyData {
    fn default() -> DirtyData {
        DirtyData {
            write_back: Mutex::new(Rank::WriteBack, ()),
            ledger: Mutex::new(Rank::InodeLeaf, DataLedger::default()),
            failures: Failures::default(),
        }
    }
}

impl DirtyData {
    /// Whether no block is dirty, and none is being written back.
    pub(crate) fn is_clean(&self) -> bool {
        let ledger = self.ledger.lock();
        !ledger.has_dirty() && !ledger.has_leaving()
    }

    /// Whether the inode can leave memory without a loss: no dirty block, no lost block to hide,
    /// and no failure that is still to be reported.
    pub(crate) fn may_leave(&self) -> bool {
        self.is_clean() && !self.ledger.lock().has_lost() && !self.failures.is_pending()
    }

    /// Takes the new blocks whose data could not be written, except those that have newer data. The
    /// caller holds the inode's lock, so no more blocks are lost meanwhile.
    pub(crate) fn take_lost(&self) -> BTreeMap<u32, Arc<Block>> {
        self.ledger.lock().take_lost()
    }

    /// Puts back blocks from [`take_lost`](Self::take_lost) that could not be hidden.
    pub(crate) fn lose_again(&self, lost: BTreeMap<u32, Arc<Block>>) {
        self.ledger.lock().lose_again(lost);
    }

    pub(crate) fn has_dirty(&self) -> bool {
        self.ledger.lock().has_dirty()
    }

    /// Whether a dirty block is old enough to be written back.
    pub(crate) fn is_due(&self) -> bool {
        let due = self.ledger.lock().due();
        due.is_some_and(|due| due <= Instant::now())
    }
}
