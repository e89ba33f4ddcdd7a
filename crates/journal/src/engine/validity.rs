//! The valid fronts of the lanes: the sequence up to which the transactions of each lane are valid
//! ([`crate::edges`] has the rule).

use std::collections::HashMap;

use stetfs_sync::plain::atomic::{AtomicU64, Ordering};

use crate::error::{Result, no_lane};
use crate::ids::{CommitPoint, Lane, TxId};

/// The newest valid sequence of each lane. It only rises.
pub(crate) struct Validity(Vec<AtomicU64>);

impl Validity {
    /// The fronts of lanes whose next transactions have these sequences.
    pub(super) fn new(next: impl Iterator<Item = u64>) -> Validity {
        let fronts = next.map(|seq| AtomicU64::new(seq.saturating_sub(1)));
        Validity(fronts.collect())
    }

    fn of(&self, lane: Lane) -> Result<&AtomicU64> {
        let front = self.0.get(usize::from(lane.0));
        front.ok_or_else(|| no_lane(lane))
    }

    /// The sequence up to which the transactions of a lane are valid.
    ///
    /// # Errors
    /// `Aborted` if the journal has no such lane.
    pub(super) fn front(&self, lane: Lane) -> Result<u64> {
        Ok(self.of(lane)?.load(Ordering::Acquire))
    }

    /// The fronts of all lanes.
    pub(super) fn fronts(&self) -> HashMap<Lane, u64> {
        let fronts = self.0.iter().map(|front| front.load(Ordering::Acquire));
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

    /// Raises a lane's front to this transaction.
    ///
    /// # Errors
    /// `Aborted` if the journal has no such lane.
    pub(super) fn raise(&self, to: TxId) -> Result<()> {
        self.of(to.lane)?.fetch_max(to.seq, Ordering::AcqRel);
        Ok(())
    }
}
