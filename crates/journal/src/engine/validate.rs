//! The end of a commit: which durable transactions have become valid, and what follows.

use std::collections::HashMap;

use stetfs_sync::plain::{MutexGuard, atomic::Ordering, mended};

use super::Inner;
use super::checkpoint_list::{CheckpointList, Durable};
use crate::edges::{front, valid_fronts};
use crate::error::Result;
use crate::ids::{Lane, TxId};
use crate::tx::AfterCommit;

impl Inner {
    /// Moves what has become valid to the checkpoint list. Returns what is to be done after.
    ///
    /// # Errors
    /// A lane is not there, or a transaction left the log before its images.
    pub(super) fn validate(&self) -> Result<Vec<AfterCommit>> {
        let mut log = self.log.lock();
        let valid = self.lanes.iter().map(|s| {
            let seq = self.valid_seq(s.lane)?;
            Ok((s.lane, seq))
        });
        let valid = valid.collect::<Result<HashMap<Lane, u64>>>()?;
        let durable = log
            .lanes
            .iter()
            .zip(&self.lanes)
            .map(|(l, s)| {
                (
                    s.lane,
                    l.durable
                        .iter()
                        .map(|d| (d.id.seq, d.edges.clone()))
                        .collect(),
                )
            })
            .collect();
        let fronts = valid_fronts(&valid, &durable);
        let (mut after, mut floor) = (Vec::new(), 0);
        while let Some(tx) = self.next_valid(&mut log, &fronts)? {
            floor = floor.max(tx.floor);
            let dropped = match self.config.canary.write_freed {
                true => 0,
                false => log.drop_pending(&tx.freed)?,
            };
            let TxId { lane, seq } = tx.id;
            let (replaced, mut callbacks) = log.accept(tx)?;
            // What may go home counts (checkpoint.K1): the next of the group may let go of the log
            // while it waits.
            self.lane(lane)?.valid.fetch_max(seq, Ordering::AcqRel);
            self.pinned.fetch_sub(dropped + replaced, Ordering::Relaxed);
            after.append(&mut callbacks);
        }
        self.superseded.fetch_max(floor, Ordering::AcqRel);
        for (log, lane) in log.lanes.iter_mut().zip(&self.lanes) {
            if log.durable.is_empty() && log.committing.is_none() {
                log.opened = None;
            }
            lane.valid
                .fetch_max(front(&fronts, lane.lane)?, Ordering::AcqRel);
        }
        Ok(after)
    }

    /// Takes the oldest durable transaction that is valid now, once no home write of a block
    /// it freed is under way: such a write must not land after the block is used again. While it
    /// waits the transaction stays listed, for the tail may not pass it (checkpoint.K2).
    fn next_valid(
        &self,
        log: &mut MutexGuard<'_, CheckpointList>,
        fronts: &HashMap<Lane, u64>,
    ) -> Result<Option<Durable>> {
        loop {
            let Some(lane) = log.oldest_durable(fronts)? else {
                return Ok(None);
            };
            let Some(tx) = log.lane(lane)?.durable.pop_front() else {
                return Ok(None);
            };
            let in_flight = log.in_flight(&tx.freed) && mended("checkpoint.in-flight");
            if !in_flight || self.has_stopped() {
                return Ok(Some(tx));
            }
            log.lane(lane)?.durable.push_front(tx);
            self.point("waits-for-home-writes");
            self.log_changed.wait(log);
        }
    }
}
