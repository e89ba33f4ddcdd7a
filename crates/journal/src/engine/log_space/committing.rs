//! A transaction's way through the log, from its snapshot until it is durable.

use std::collections::VecDeque;

use stetfs_sync::plain::atomic::Ordering;

use super::list::{Committing, Durable};
use super::{LogSpace, Ring};
use crate::error::{JournalError, Result};
use crate::ids::{BlockNr, Stamp, TxId};
use crate::policy::{Encoded, LogTail, Medium};

impl LogSpace {
    /// Lists the images of a snapshot, which are going to be in the log. `opened` is the stamp of
    /// the transaction's first handle.
    ///
    /// # Errors
    /// `Aborted` if there is no such lane.
    pub(in crate::engine) fn list_snapshot(
        &self,
        tx: TxId,
        stamp: Stamp,
        opened: Stamp,
        homes: &[BlockNr],
    ) -> Result<()> {
        let mut list = self.list.lock();
        list.index_images(tx, homes);
        let lane = list.lane(tx.lane)?;
        lane.next_seq = tx.seq + 1;
        lane.committing.push_back(Committing {
            tx,
            stamp,
            opened,
            at: None,
        });
        drop(list);
        self.pinned.fetch_add(homes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Lays out a transaction of at most `reserved` log blocks at the head of its lane's ring.
    /// Returns its first log block, and its encoding.
    ///
    /// # Errors
    /// The errors of `encode`; `Aborted` if it takes more than was reserved, or if an older
    /// transaction of the lane is not durable (commit.A2), impossible states.
    pub(in crate::engine) fn lay_out(
        &self,
        tx: TxId,
        reserved: u64,
        encode: impl FnOnce(&dyn Medium, u64) -> Result<Encoded>,
    ) -> Result<(u64, Encoded)> {
        let lane = tx.lane;
        let Ring { medium, free } = self.ring(lane)?;
        free.fetch_sub(reserved, Ordering::AcqRel);
        let at = self.take_head(tx)?;
        let encoded = encode(&**medium, at)?;
        let unused = reserved.checked_sub(encoded.blocks()).ok_or_else(|| {
            let blocks = encoded.blocks();
            JournalError::Aborted(format!(
                "internal error: a transaction takes {blocks} log blocks, {reserved} were reserved"
            ))
        })?;
        free.fetch_add(unused, Ordering::AcqRel);
        self.list.lock().lane(lane)?.head = medium.advance(at, encoded.blocks());
        Ok((at, encoded))
    }

    /// The head of a lane's ring, for its oldest committing transaction. Only the thread that
    /// commits that one moves the head.
    fn take_head(&self, tx: TxId) -> Result<u64> {
        let mut list = self.list.lock();
        let lane = list.lane(tx.lane)?;
        let head = lane.head;
        let at = self.turn_of(tx, &lane.committing)?;
        if let Some(committing) = lane.committing.get_mut(at) {
            committing.at = Some(head);
        }
        Ok(head)
    }

    /// Points the headers of empty logs to these transactions, before they count: a header that
    /// says "empty" would hide them. `starts` are the transactions of a group, each with its first
    /// log block; their tails are written together.
    ///
    /// # Errors
    /// The device's; `Aborted` if there is no such lane.
    pub(in crate::engine) fn mark_starts(
        &self,
        starts: &[(TxId, u64)],
        barrier: bool,
    ) -> Result<()> {
        let mut tails = Vec::new();
        for (tx, at) in starts {
            let medium = &*self.ring(tx.lane)?.medium;
            if medium.tail().at.is_none() {
                let (seq, at) = (tx.seq, Some(*at));
                tails.push((medium, LogTail { seq, at }));
            }
        }
        let Some((medium, tail)) = tails.pop() else {
            return Ok(());
        };
        let _alone = self.tails.lock();
        for (medium, tail) in tails {
            medium.note_tail(tail);
        }
        medium.set_tail(tail, barrier)
    }

    /// Lists a durable transaction for [`validate`](Self::validate).
    ///
    /// # Errors
    /// `Aborted` if there is no such lane, or if an older transaction of it is not durable
    /// (commit.A2), an impossible state.
    pub(in crate::engine) fn list_durable(&self, durable: Durable) -> Result<()> {
        let mut list = self.list.lock();
        let tx = durable.tx.id;
        let lane = list.lane(tx.lane)?;
        let at = self.turn_of(tx, &lane.committing)?;
        lane.committing.remove(at);
        lane.durable.push_back(durable);
        Ok(())
    }

    /// The place of a transaction among those of its lane that are not durable: it is the oldest.
    fn turn_of(&self, tx: TxId, committing: &VecDeque<Committing>) -> Result<usize> {
        let at = committing.iter().position(|of| of.tx == tx);
        let any = self.base.config.canary.out_of_turn;
        at.filter(|at| *at == 0 || any).ok_or_else(|| {
            JournalError::Aborted(format!(
                "commit.A2: transaction {} of lane {} is written although an older one is not \
                 durable",
                tx.seq, tx.lane.0
            ))
        })
    }

    /// Waits until all transactions older than `stamp` whose snapshots are taken are valid.
    ///
    /// # Errors
    /// `Aborted` once the journal has stopped.
    pub(in crate::engine) fn await_older(&self, stamp: Stamp) -> Result<()> {
        let mut list = self.list.lock();
        while list.any_in_flight_below(stamp) {
            self.base.check()?;
            self.changed.wait(&mut list);
        }
        Ok(())
    }
}
