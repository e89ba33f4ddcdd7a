//! The fronts of the lanes: the sequence up to which the transactions of each lane are valid
//! ([`crate::edges`] has the rule), and the one up to which they are settled, too.
//!
//! A transaction is settled once it is valid and its callbacks have run. Syncs are answered then.

use std::collections::HashMap;

use stetfs_sync::plain::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::error::{Result, no_lane};
use crate::ids::{CommitPoint, Lane, TxId};

/// The newest valid and the newest settled sequence of each lane. They only rise.
pub(crate) struct Validity {
    lanes: Vec<Fronts>,
    /// Held while a settled front rises, and by threads that are about to wait for that.
    rising: Mutex<()>,
    /// Signalled when a settled front has risen, or the journal has stopped.
    risen: Condvar,
}

/// The fronts of one lane.
struct Fronts {
    valid: AtomicU64,
    settled: AtomicU64,
}

impl Validity {
    /// The fronts of lanes whose next transactions have these sequences.
    pub(super) fn new(next: impl Iterator<Item = u64>) -> Validity {
        let fronts = |seq: u64| Fronts {
            valid: AtomicU64::new(seq.saturating_sub(1)),
            settled: AtomicU64::new(seq.saturating_sub(1)),
        };
        Validity {
            lanes: next.map(fronts).collect(),
            rising: Mutex::new(()),
            risen: Condvar::new(),
        }
    }

    fn of(&self, lane: Lane) -> Result<&Fronts> {
        let fronts = self.lanes.get(usize::from(lane.0));
        fronts.ok_or_else(|| no_lane(lane))
    }

    /// The sequence up to which the transactions of a lane are valid.
    ///
    /// # Errors
    /// `Aborted` if the journal has no such lane.
    pub(super) fn front(&self, lane: Lane) -> Result<u64> {
        Ok(self.of(lane)?.valid.load(Ordering::Acquire))
    }

    /// The valid fronts of all lanes.
    pub(super) fn fronts(&self) -> HashMap<Lane, u64> {
        let fronts = self.lanes.iter();
        let fronts = fronts.map(|fronts| fronts.valid.load(Ordering::Acquire));
        (0..).map(Lane).zip(fronts).collect()
    }

    /// Whether a transaction is valid.
    ///
    /// # Errors
    /// `Aborted` if the journal has no such lane.
    pub(super) fn has(&self, tx: TxId) -> Result<bool> {
        Ok(self.front(tx.lane)? >= tx.seq)
    }

    /// Whether everything in a point is valid. A point that names a lane that does not exist is
    /// not; a commit up to it reports the error.
    pub(super) fn holds(&self, point: &CommitPoint) -> bool {
        point.iter().all(|tx| self.has(tx).unwrap_or(false))
    }

    /// Raises a lane's valid front to this transaction.
    ///
    /// # Errors
    /// `Aborted` if the journal has no such lane.
    pub(super) fn raise(&self, to: TxId) -> Result<()> {
        self.of(to.lane)?.valid.fetch_max(to.seq, Ordering::AcqRel);
        Ok(())
    }

    /// Notes that the callbacks of these transactions, which are valid, have run.
    pub(super) fn settle(&self, txs: &CommitPoint) {
        let _rising = self.rising.lock();
        for tx in txs.iter() {
            if let Ok(fronts) = self.of(tx.lane) {
                fronts.settled.fetch_max(tx.seq, Ordering::AcqRel);
            }
        }
        self.risen.notify_all();
    }

    /// Whether everything in a point is settled. A point that names a lane that does not exist is
    /// not; a commit up to it reports the error.
    pub(super) fn has_settled(&self, point: &CommitPoint) -> bool {
        self.unsettled(point).is_none()
    }

    /// The first transaction of a point that is not settled.
    pub(super) fn unsettled(&self, point: &CommitPoint) -> Option<TxId> {
        let is_settled = |tx: &TxId| {
            let fronts = self.of(tx.lane);
            fronts.is_ok_and(|fronts| fronts.settled.load(Ordering::Acquire) >= tx.seq)
        };
        point.iter().find(|tx| !is_settled(tx))
    }

    /// Waits until everything in a point is settled. `check` ends the wait with an error.
    ///
    /// # Errors
    /// The error of `check`.
    pub(super) fn await_settled(
        &self,
        point: &CommitPoint,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut rising = self.rising.lock();
        while !self.has_settled(point) {
            check()?;
            self.risen.wait(&mut rising);
        }
        Ok(())
    }

    /// Wakes all waiting threads, which then check whether to go on.
    pub(super) fn wake(&self) {
        let _rising = self.rising.lock();
        self.risen.notify_all();
    }
}
