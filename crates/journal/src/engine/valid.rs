//! Which durable transactions are valid, and who waits for them.
//!
//! Invariants:
//! * **V1** A sync is answered when everything its point names is valid, and what was to be done then has been done.
//! * **V2** Transactions become valid in the order of their stamps where one depends on another: a newer image of a block replaces an
//!   older one on the checkpoint list, never the other way round.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::Inner;
use super::log::{Durable, Log};
use crate::edges::valid_fronts;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, TxId};
use crate::tx::AfterCommit;

impl Inner {
    /// Waits until everything a point names is valid (V1). It is committed, or being committed, or there is nothing in it.
    pub(super) fn await_valid(&self, point: &CommitPoint) -> Result<()> {
        loop {
            self.validate();
            let mut log = self.log.lock();
            if self.is_settled(point) {
                break;
            }
            self.check()?;
            self.log_changed.wait(&mut log);
        }
        // Who made them valid may still be at what is to be done then.
        drop(self.validating.lock());
        Ok(())
    }

    /// Whether everything a point names is valid, but for running transactions without changes: of such a lane all before is.
    fn is_settled(&self, point: &CommitPoint) -> bool {
        let is_settled = |tx: TxId| match self.valid_seq(tx.lane) {
            valid if valid >= tx.seq => true,
            valid if valid + 1 < tx.seq => false,
            _ => {
                let run = self.slot(tx.lane).run.lock();
                run.tx.id == tx && run.tx.is_untouched()
            }
        };
        point.iter().all(is_settled)
    }

    /// Moves what has become valid to the checkpoint list, and does what was to be done then.
    fn validate(&self) {
        let _one_at_a_time = self.validating.lock();
        for f in self.accept_valid() {
            f();
        }
    }

    fn accept_valid(&self) -> Vec<AfterCommit> {
        let mut log = self.log.lock();
        let valid: HashMap<Lane, u64> = self
            .slots
            .iter()
            .map(|s| (s.lane, self.valid_seq(s.lane)))
            .collect();
        let durable = |(log, slot): (&super::log::LaneLog, &super::Slot)| {
            let txs = log.durable.iter().map(|d| (d.id.seq, d.edges.clone()));
            (slot.lane, txs.collect())
        };
        let durable = log.lanes.iter().zip(&self.slots).map(durable).collect();
        let fronts = valid_fronts(&valid, &durable);
        let (mut after, mut floor) = (Vec::new(), 0);
        while let Some(tx) = self.next_valid(&mut log, &fronts) {
            floor = floor.max(tx.floor);
            let dropped = log.drop_pending(&tx.freed);
            let (replaced, mut callbacks) = log.accept(tx);
            self.pinned.fetch_sub(dropped + replaced, Ordering::Relaxed);
            after.append(&mut callbacks);
        }
        self.superseded.fetch_max(floor, Ordering::AcqRel);
        for (slot, valid) in self.slots.iter().zip(&self.valid) {
            let front = fronts.get(&slot.lane).copied().unwrap_or(0);
            valid.fetch_max(front, Ordering::AcqRel);
        }
        self.log_changed.notify_all();
        after
    }

    /// Takes the oldest durable transaction that is valid now, once no home write of a block
    /// it freed is under way: such a write must not land after the block is used again. While it
    /// waits the transaction stays listed, for the tail may not pass it (K2).
    fn next_valid(
        &self,
        log: &mut MutexGuard<'_, Log>,
        fronts: &HashMap<Lane, u64>,
    ) -> Option<Durable> {
        loop {
            let lane = log.oldest_durable(fronts)?;
            let durable = &mut log.lanes.get_mut(lane)?.durable;
            let tx = durable.pop_front()?;
            if !log.goes_home(&tx.freed) || self.has_stopped() {
                return Some(tx);
            }
            log.lanes.get_mut(lane)?.durable.push_front(tx);
            self.log_changed.wait(log);
        }
    }
}
