//! Promises of blocks to a recovery, beyond those that the records of files name (replay.A3).
//!
//! Recovery applies a record to the older state of the last commit. There a directory may be
//! fuller, or a map more fragmented, than in the state in which the record was written. So names
//! and extents may take blocks that the running volume did not need. Each record promises itself
//! the most that it may take. The promise ends when a valid transaction supersedes the record.
//!
//! A promise of free blocks is enough: a block that is free now and not pending is also free in the
//! state of the last commit, and no record names it. Blocks that invalid transactions allocated for
//! directories and maps are free there as well.

use stetfs_journal::Stamp;

use super::allocator::Allocator;
use super::reserve::Reservation;

impl Allocator {
    /// Promises `blocks` blocks to a record that is about to be written; `None` if the volume is
    /// too full. The reserved blocks, and those kept for maps, may be used: a recovery may take
    /// them.
    pub(crate) fn promise_redo(&self, blocks: u64) -> Option<Reservation<'_>> {
        // Done for each record, so that no more promises are remembered than records are alive.
        self.end_redo_promises();
        self.promise_all(blocks, self.groups.pending_blocks())
    }

    /// Keeps a promise as long as the record with this stamp is alive.
    pub(crate) fn keep_redo_promise(&self, promise: Reservation<'_>, record: Stamp) {
        let clusters = promise.keep();
        if clusters > 0 {
            self.groups.redo.lock().keep(record, clusters);
        }
    }

    /// Ends the promises of records that valid transactions supersede. Returns the clusters
    /// promised to the other records.
    pub(super) fn end_redo_promises(&self) -> u64 {
        let mut promises = self.groups.redo.lock();
        let ended = promises.end(|record| self.vol.journal.is_alive(record));
        let left = promises.sum();
        drop(promises);
        drop(self.kept_promise(ended));
        left
    }

    /// Clusters promised to records, including those of records that ended since the last check.
    #[cfg(test)]
    pub(crate) fn promised_to_records(&self) -> u64 {
        self.groups.redo.lock().sum()
    }
}
