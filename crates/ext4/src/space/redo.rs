//! Blocks that a recovery may need beyond those that the records of files name (replay.A3).
//!
//! A record is applied to the older state of the last commit. There a directory may be fuller and a
//! map more broken up than in the state that the record was written in, so that names and extents
//! take blocks which the running volume did not need. Each record promises itself what it may take
//! at most. The promise ends when a valid transaction supersedes the record.
//!
//! Why a promise of free blocks is enough: what is free now and not pending is free in the state of
//! the last commit, too, and no record names it. What transactions that are not valid allocated for
//! directories and maps is free there as well.

use stetfs_journal::Stamp;

use super::allocator::Allocator;
use super::reserve::Reservation;

impl Allocator {
    /// Promises `blocks` blocks to a record that is about to be written; `None` if the volume is
    /// too full. The reserved blocks, and those kept for maps, count: a recovery may take them.
    pub(crate) fn promise_redo(&self, blocks: u64) -> Option<Reservation<'_>> {
        // At each record, so that no more promises are remembered than records live.
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

    /// Ends the promises of records that valid transactions supersede. Gives the clusters that are
    /// promised to the others.
    pub(super) fn end_redo_promises(&self) -> u64 {
        let mut promises = self.groups.redo.lock();
        let ended = promises.end(|record| self.vol.journal.is_alive(record));
        let left = promises.sum();
        drop(promises);
        drop(self.kept_promise(ended));
        left
    }

    /// Clusters promised to records, those included that are not alive and not looked at since.
    #[cfg(test)]
    pub(crate) fn promised_to_records(&self) -> u64 {
        self.groups.redo.lock().sum()
    }
}
