//! The lanes: the running transaction of each, the chains between them, and the one order of all
//! commits.
//!
//! Only the [`Preparer`] locks a running transaction and opens the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stetfs_ondisk::num::count16;
use stetfs_sync::plain::{
    Condvar, Instant, Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::validity::Validity;
use crate::canary::Canary;
use crate::error::{Result, no_lane};
use crate::ids::{CommitPoint, Credits, Lane, Near, Stamp, TxId};
use crate::policy::{self, Copies};
use crate::tx::{Tx, TxState};

/// The right to lock lanes, to draw the stamps of snapshots and to open transactions. An engine has
/// one, behind a lock.
pub(super) struct Preparer(());

impl Preparer {
    /// The preparer of an engine, made once.
    pub(super) fn the_only_one() -> Preparer {
        Preparer(())
    }
}

/// The state of a lane. The checkpoint list of [`LogSpace`](super::log_space::LogSpace) has the
/// live transactions of its ring.
pub(super) struct LaneState {
    pub(super) lane: Lane,
    run: Mutex<Run>,
    /// Signalled when a snapshot was taken or room was made.
    changed: Condvar,
}

/// The running transaction of a lane, or the one that a commit has locked.
pub(super) struct Run {
    tx: Arc<Tx>,
}

impl Run {
    pub(super) fn tx(&self) -> &Arc<Tx> {
        &self.tx
    }

    /// Whether a commit has locked it: there are no new handles until the next transaction opens
    /// (tx.T1).
    pub(super) fn is_locked(&self) -> bool {
        !self.tx.phase().takes_handles()
    }

    /// Locks the running transaction for a commit.
    ///
    /// # Errors
    /// `Aborted` if it is locked already (tx.T6).
    pub(super) fn lock(&mut self, _: &mut Preparer) -> Result<Arc<Tx>> {
        let _state = self.tx.state.lock();
        self.tx.lock()?;
        Ok(Arc::clone(&self.tx))
    }
}

impl LaneState {
    /// The lane's running transaction, held.
    pub(super) fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock()
    }

    /// As [`run`](Self::run); none if another thread holds it.
    pub(super) fn try_run(&self) -> Option<MutexGuard<'_, Run>> {
        self.run.try_lock()
    }

    /// Waits until a snapshot was taken or room was made.
    pub(super) fn wait(&self, run: &mut MutexGuard<'_, Run>) {
        self.changed.wait(run);
    }

    /// As [`wait`](Self::wait), for `time` at most.
    pub(super) fn wait_for(&self, run: &mut MutexGuard<'_, Run>, time: Duration) {
        self.changed.wait_for(run, time);
    }

    /// Opens the transaction after `tx`, whose snapshot is taken.
    pub(super) fn open_next(&self, tx: TxId, _: &mut Preparer) {
        let mut run = self.run.lock();
        run.tx = Arc::new(Tx::new(TxId {
            lane: self.lane,
            seq: tx.seq + 1,
        }));
        self.changed.notify_all();
    }

    /// Wakes handles that wait for the lane.
    fn wake(&self) {
        let _run = self.run.lock();
        self.changed.notify_all();
    }
}

/// All lanes of a journal.
pub(crate) struct Lanes {
    lanes: Vec<LaneState>,
    ordering: Box<dyn policy::Ordering>,
    /// Credits that every handle gets beyond what it asks for.
    margin: AtomicU32,
    /// The last stamp drawn ([`Stamp`]): it gives all commits one order, over all lanes.
    stamp: AtomicU64,
    canary: Canary,
}

impl Lanes {
    /// Lanes whose first transactions have the sequences `next`; `stamp` is the last stamp drawn.
    pub(super) fn new(
        ordering: Box<dyn policy::Ordering>,
        next: impl Iterator<Item = u64>,
        stamp: Stamp,
        canary: Canary,
    ) -> Lanes {
        let lane = |(lane, seq)| LaneState {
            lane,
            run: Mutex::new(Run {
                tx: Arc::new(Tx::new(TxId { lane, seq })),
            }),
            changed: Condvar::new(),
        };
        Lanes {
            lanes: (0..).map(Lane).zip(next).map(lane).collect(),
            ordering,
            margin: AtomicU32::new(0),
            stamp: AtomicU64::new(stamp),
            canary,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LaneState> {
        self.lanes.iter()
    }

    /// The number of lanes.
    pub(crate) fn count(&self) -> u16 {
        count16(self.lanes.len())
    }

    /// # Errors
    /// `Aborted` if the journal has no such lane: the transaction is of another journal.
    pub(super) fn lane(&self, lane: Lane) -> Result<&LaneState> {
        let state = self.lanes.get(usize::from(lane.0));
        state.ok_or_else(|| no_lane(lane))
    }

    /// The lane of the calling thread's next handle. There is at least one lane.
    pub(super) fn own(&self, near: Option<Near>) -> Lane {
        Lane(self.ordering.lane(near).0 % self.count())
    }

    /// Which side copies the pages of snapshots.
    pub(super) fn copies(&self) -> Copies {
        self.ordering.copies()
    }

    /// Whether each lane takes space from its own part of the volume first.
    pub(crate) fn keeps_apart(&self) -> bool {
        self.ordering.keeps_apart()
    }

    /// See [`Journal::set_margin`](crate::Journal::set_margin).
    pub(crate) fn margin(&self) -> Credits {
        self.margin.load(Ordering::Acquire)
    }

    pub(crate) fn set_margin(&self, margin: Credits) {
        self.margin.store(margin, Ordering::Release);
    }

    /// The stamp that was drawn last.
    pub(crate) fn now(&self) -> Stamp {
        self.stamp.load(Ordering::Acquire)
    }

    /// Draws the next stamp.
    pub(crate) fn draw(&self) -> Stamp {
        self.stamp.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Gives a handle of `need` credits a place in a running transaction.
    pub(super) fn take_place(&self, state: &mut TxState, need: Credits) {
        state.handles += 1;
        state.touched.get_or_insert_with(Instant::now);
        state.opened.get_or_insert_with(|| self.now());
        state.reserved += u64::from(need);
    }

    /// A point that covers every change made before the call.
    pub(crate) fn everything(&self) -> CommitPoint {
        self.everything_of(|_| true)
    }

    /// A point that covers every change made before the call in the lanes that `of_lane` selects.
    pub(super) fn everything_of(&self, of_lane: impl Fn(Lane) -> bool) -> CommitPoint {
        let mut point = CommitPoint::none();
        for lane in self.lanes.iter().filter(|lane| of_lane(lane.lane)) {
            point.add(lane.run().tx.id);
        }
        point
    }

    /// The sequences of the running transactions.
    pub(super) fn running(&self) -> HashMap<Lane, u64> {
        let lanes = self.lanes.iter();
        lanes
            .map(|lane| (lane.lane, lane.run().tx.id.seq))
            .collect()
    }

    /// The number of blocks that the running transactions have changed so far.
    pub(crate) fn running_blocks(&self) -> u64 {
        let lanes = self.lanes.iter();
        let blocks = lanes.map(|lane| lane.run().tx.state.lock().blocks.len() as u64);
        blocks.sum()
    }

    /// The time of the first handle of each running transaction that has something to commit, in
    /// the lanes that `of_lane` selects.
    pub(super) fn touched(&self, of_lane: impl Fn(Lane) -> bool) -> impl Iterator<Item = Instant> {
        let lanes = self.lanes.iter().filter(move |lane| of_lane(lane.lane));
        lanes.filter_map(|lane| {
            let run = lane.run();
            let touched = run.tx.state.lock().touched;
            touched.filter(|_| !run.tx.is_untouched())
        })
    }

    /// The transactions that have to be committed together for `point`, over the closure of its
    /// chains: for each lane the newest sequence it must reach.
    ///
    /// # Errors
    /// `Aborted` if the point names a lane that does not exist.
    pub(super) fn closure(
        &self,
        point: &CommitPoint,
        validity: &Validity,
    ) -> Result<HashMap<Lane, u64>> {
        let mut want: HashMap<Lane, u64> = HashMap::new();
        let mut todo: Vec<TxId> = point.iter().collect();
        while let Some(tx) = todo.pop() {
            let seen = want.entry(tx.lane).or_insert(0);
            if *seen >= tx.seq || validity.has(tx)? {
                continue;
            }
            *seen = tx.seq;
            let run = self.lane(tx.lane)?.run();
            if run.tx.id.seq <= tx.seq {
                let state = run.tx.state.lock();
                todo.extend(state.edges.iter());
            }
        }
        Ok(want)
    }

    /// A point that, once valid, supersedes every record reserved before the call. A running
    /// transaction whose changes have ended may have its snapshot already; then only the next one
    /// supersedes them (record.F1).
    pub(crate) fn superseding(&self) -> CommitPoint {
        let mut point = CommitPoint::none();
        for lane in &self.lanes {
            let run = lane.run();
            let TxId { lane, seq } = run.tx.id;
            let _state = run.tx.state.lock();
            let ends = run.tx.phase().is_ended();
            point.add(TxId {
                lane,
                seq: seq + u64::from(ends && !self.canary.supersede_early),
            });
        }
        point
    }

    /// The lowest opening stamp among the running transactions of the lanes that `of_lane` selects.
    pub(super) fn oldest_opening(&self, of_lane: impl Fn(Lane) -> bool) -> Option<Stamp> {
        let lanes = self.lanes.iter().filter(|lane| of_lane(lane.lane));
        let opened = lanes.filter_map(|lane| lane.run().tx.state.lock().opened);
        opened.min()
    }

    /// Wakes handles that wait for any lane.
    pub(super) fn wake(&self) {
        self.lanes.iter().for_each(LaneState::wake);
    }
}
