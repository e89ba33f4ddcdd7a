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

use std::sync::atomic::Ordering;

use stetfs_journal::Stamp;

use super::allocator::Allocator;
use super::reserve::Reservation;

impl Allocator {
    /// Promises `blocks` blocks to a record that is about to be written; `None` if the volume is
    /// too full. The reserved blocks, and those kept for maps, count: a recovery may take them.
    pub(crate) fn promise_redo(&self, blocks: u64) -> Option<Reservation<'_>> {
        let promise = || self.promise_all(blocks, self.groups.pending_blocks());
        promise().or_else(|| {
            self.end_redo_promises();
            promise()
        })
    }

    /// Keeps a promise as long as the record with this stamp is alive.
    pub(crate) fn keep_redo_promise(&self, promise: Reservation<'_>, record: Stamp) {
        let clusters = promise.keep();
        if clusters > 0 {
            self.groups.redo.sum.fetch_add(clusters, Ordering::Relaxed);
            let mut promises = self.groups.redo.promises.lock();
            promises.push_back((record, clusters));
        }
    }

    /// Ends the promises of records that valid transactions supersede.
    pub(super) fn end_redo_promises(&self) {
        let mut ended = 0;
        {
            let mut promises = self.groups.redo.promises.lock();
            // Syncs of two files come here in any order, with stamps that are close.
            while let Some((record, clusters)) = promises.front()
                && !self.vol.journal.is_alive(*record)
            {
                ended += clusters;
                promises.pop_front();
            }
        }
        if ended > 0 {
            self.groups.redo.sum.fetch_sub(ended, Ordering::Relaxed);
            drop(self.kept_promise(ended));
        }
    }
}
