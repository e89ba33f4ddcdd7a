//! The end of a commit: durable transactions become valid, and enter the checkpoint list.

use std::collections::HashMap;

use stetfs_sync::plain::{MutexGuard, atomic::Ordering};

use super::LogSpace;
use super::list::{CheckpointList, Durable};
use crate::edges::{front, valid_fronts};
use crate::engine::validity::Validity;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, Stamp, TxId};
use crate::tx::AfterCommit;

impl LogSpace {
    /// Moves the transactions that have become valid to the checkpoint list. Returns them, and
    /// their callbacks. `supersede` gets the records' floor before the fronts are fully raised.
    ///
    /// # Errors
    /// `Aborted` if a lane does not exist, or if a transaction left the log before its images were
    /// home.
    pub(in crate::engine) fn validate(
        &self,
        validity: &Validity,
        supersede: impl FnOnce(Stamp),
    ) -> Result<(CommitPoint, Vec<AfterCommit>)> {
        let mut list = self.list.lock();
        let of_lane = |durable: &Durable| (durable.tx.id.seq, durable.edges.clone());
        let durable = list.lanes.iter().map(|lane| {
            let durable = lane.durable.iter().map(of_lane);
            (lane.lane, durable.collect())
        });
        let fronts = valid_fronts(&validity.fronts(), &durable.collect());
        let (mut valid, mut after, mut floor) = (CommitPoint::none(), Vec::new(), 0);
        while let Some(durable) = self.next_valid(&mut list, &fronts)? {
            floor = floor.max(durable.floor);
            let dropped = match self.base.config.canary.write_freed {
                true => 0,
                false => list.drop_pending(&durable.freed)?,
            };
            let tx = durable.tx.id;
            let (replaced, mut callbacks) = list.accept(durable)?;
            // An image counts before it may be written home (checkpoint.K1): while the next
            // transaction of the group waits, it lets go of the list, and a checkpoint may run.
            validity.raise(tx)?;
            valid.add(tx);
            self.pinned.fetch_sub(dropped + replaced, Ordering::Relaxed);
            after.append(&mut callbacks);
        }
        supersede(floor);
        for log in &list.lanes {
            let (lane, seq) = (log.lane, front(&fronts, log.lane)?);
            validity.raise(TxId { lane, seq })?;
        }
        drop(list);
        // Commits may wait for older ones.
        self.changed.notify_all();
        Ok((valid, after))
    }

    /// Takes the oldest durable transaction that is valid by `fronts`, once no block that it freed
    /// is being written home: such a write must not land after the block is used again. While this
    /// waits the transaction stays listed, for the tail may not pass it (checkpoint.K2).
    fn next_valid(
        &self,
        list: &mut MutexGuard<'_, CheckpointList>,
        fronts: &HashMap<Lane, u64>,
    ) -> Result<Option<Durable>> {
        loop {
            let Some(lane) = list.oldest_durable(fronts)? else {
                return Ok(None);
            };
            let Some(tx) = list.lane(lane)?.durable.pop_front() else {
                return Ok(None);
            };
            let canary = &self.base.config.canary;
            let in_flight = list.in_flight(&tx.freed) && !canary.free_in_flight;
            if !in_flight || self.base.has_stopped() {
                return Ok(Some(tx));
            }
            list.lane(lane)?.durable.push_front(tx);
            self.base.point("waits-for-home-writes");
            self.changed.wait(list);
        }
    }
}
