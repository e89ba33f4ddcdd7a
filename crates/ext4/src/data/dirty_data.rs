//! The dirty data of one file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use stetfs_journal::Block;
use stetfs_sync::{Mutex, Rank};

use super::failures::Failures;
use crate::durability::DataLedger;

/// The dirty data of one file (data.D2, data.D3).
pub(crate) struct DirtyData {
    /// Held while blocks are written home, and while they are taken out to be dropped.
    pub(super) flush: Mutex<()>,
    pub(super) ledger: Mutex<DataLedger>,
    /// Home writes that failed.
    pub(crate) failures: Failures,
}

impl Default for DirtyData {
    fn default() -> DirtyData {
        DirtyData {
            flush: Mutex::new(Rank::DataFlush, ()),
            ledger: Mutex::new(Rank::InodeLeaf, DataLedger::default()),
            failures: Failures::default(),
        }
    }
}

impl DirtyData {
    /// Whether there is no dirty block, nor one on its way home.
    pub(crate) fn is_clean(&self) -> bool {
        let ledger = self.ledger.lock();
        !ledger.has_dirty() && !ledger.has_leaving()
    }

    /// Whether nothing would be lost with the inode: no dirty block, no lost one to hide, and no
    /// failure to tell of.
    pub(crate) fn may_leave(&self) -> bool {
        self.is_clean() && !self.ledger.lock().has_lost() && !self.failures.is_pending()
    }

    /// The new blocks whose data could not be written, but for those that have newer data. The
    /// inode's lock is held, so there will be no more of that.
    pub(super) fn take_lost(&self) -> BTreeMap<u32, Arc<Block>> {
        self.ledger.lock().take_lost()
    }

    /// Some of them could not be hidden.
    pub(super) fn lose_again(&self, lost: BTreeMap<u32, Arc<Block>>) {
        self.ledger.lock().lose_again(lost);
    }

    pub(super) fn has_dirty(&self) -> bool {
        self.ledger.lock().has_dirty()
    }

    /// Whether a dirty block is old enough to go home.
    pub(super) fn is_due(&self) -> bool {
        let due = self.ledger.lock().due();
        due.is_some_and(|due| due <= Instant::now())
    }
}
