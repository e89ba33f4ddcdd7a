//! The first stage of a commit: lock the running transactions that commit together, wait for their
//! handles, take all snapshots, and open the next transactions. One thread prepares at a time.

use std::sync::Arc;

use super::Engine;
use super::in_flight::InFlight;
use super::lanes::{LaneState, Preparer};
use crate::error::{JournalError, Result};
use crate::ids::{CommitPoint, Ino, Lane, Stamp, TxId};
use crate::tx::{Snapshot, Tx, TxRest};

/// The locked transactions of a group, each with its lane.
type Members<'s> = Vec<(&'s LaneState, Arc<Tx>)>;

/// A group whose snapshots are taken.
pub(super) struct Prepared {
    pub(super) group: Vec<InFlight>,
    /// The transactions that must be valid before the request is answered: those of the group, and
    /// requested ones that other threads are committing (commit.A1).
    pub(super) needed: CommitPoint,
    /// Inodes with data in records that the group supersedes; their home locations may be older
    /// (record.F4).
    pub(super) recorded: Vec<Ino>,
}

/// Chains all transactions of a group to each other, so that they count together or not at all:
/// each supersedes records whose changes the others hold (record.F3).
fn chain(members: &Members<'_>) {
    for (_, tx) in members {
        let others = members.iter().filter(|(_, other)| other.id != tx.id);
        let mut state = tx.state.lock();
        others.for_each(|(_, other)| state.edges.add(other.id));
    }
}

impl Engine {
    /// Prepares every lane's running transaction that `point` needs, with all that is chained to
    /// it. The group is empty if there is nothing to commit.
    ///
    /// # Errors
    /// `Aborted` if the point names a lane that does not exist, or for an impossible state (tx.T6).
    pub(super) fn prepare(&self, point: &CommitPoint) -> Result<Prepared> {
        let preparer = &mut *self.preparer.lock();
        let members = self.lock_group(point, preparer)?;
        let needed = self.needed(point, &members)?;
        if members.is_empty() {
            return Ok(Prepared {
                group: Vec::new(),
                needed,
                recorded: Vec::new(),
            });
        }
        if self.records.log().is_some() {
            chain(&members);
        }
        // Records of changes that the group does not make valid stay alive: those in transactions
        // outside the group, and those after the snapshots.
        let grouped = |nr| members.iter().any(|(lane, _)| lane.lane == nr);
        let oldest = || self.oldest_opening(|lane| !grouped(lane));
        let floor = self.records.held().unwrap_or_else(oldest);
        let mut group = Vec::with_capacity(members.len());
        for (_, tx) in &members {
            group.push(self.take_snapshot(tx, floor, preparer)?);
        }
        self.base.point("snapshots-taken");
        // The notes are taken after the floor is known (record.F4).
        let recorded = match self.base.config.canary.leave_recorded {
            true => Vec::new(),
            false => self.records.take_recorded(floor),
        };
        for (lane, tx) in &members {
            lane.open_next(tx.id, preparer);
        }
        Ok(Prepared {
            group,
            needed,
            recorded,
        })
    }

    /// The transactions that must be valid before a request for `point` is answered. A running
    /// transaction that is not in the group holds nothing, so the one before it counts in its
    /// place.
    ///
    /// # Errors
    /// `Aborted` if one of them, or one that the group depends on, is neither in the group nor
    /// committed by another thread (commit.A1), an impossible state.
    fn needed(&self, point: &CommitPoint, members: &Members<'_>) -> Result<CommitPoint> {
        let mut needed = CommitPoint::none();
        let is_member = |tx| members.iter().any(|(_, member)| member.id == tx);
        for tx in point.iter() {
            let running = self.lanes.lane(tx.lane)?.run().tx().id;
            let holds_nothing = tx == running && !is_member(tx);
            let seq = tx.seq - u64::from(holds_nothing);
            needed.add(TxId { seq, ..tx });
        }
        for (_, tx) in members {
            needed.add(tx.id);
            needed.merge(&tx.state.lock().edges);
        }
        for tx in needed.iter() {
            let running = self.lanes.lane(tx.lane)?.run().tx().id;
            if tx.seq >= running.seq && !is_member(tx) {
                return Err(JournalError::Aborted(format!(
                    "commit.A1: a commit leaves out transaction {} of lane {}, which it was asked \
                     for",
                    tx.seq, tx.lane.0
                )));
            }
        }
        Ok(needed)
    }

    /// Locks the running transactions that must commit together, waits for their handles, and ends
    /// the changes of all at once (tx.T4). No lane opens before all their snapshots are taken.
    /// Requested transactions that hold nothing are left out.
    fn lock_group(&self, point: &CommitPoint, preparer: &mut Preparer) -> Result<Members<'_>> {
        let mut members: Members<'_> = Vec::new();
        // A transaction without changes supersedes records, too.
        let supersedes = self.records.recorded_since().is_some();
        loop {
            let closure = |point: &CommitPoint| self.lanes.closure(point, &self.validity);
            let mut want = closure(point)?;
            for (_, tx) in &members {
                for (lane, seq) in closure(&CommitPoint::from(tx.id))? {
                    let entry = want.entry(lane).or_insert(0);
                    *entry = (*entry).max(seq);
                }
            }
            for lane in self.lanes.iter() {
                let Some(seq) = want.get(&lane.lane) else {
                    continue;
                };
                let mut run = lane.run();
                if run.tx().id.seq > *seq || run.is_locked() {
                    continue;
                }
                if run.tx().is_untouched() && !supersedes {
                    continue;
                }
                members.push((lane, run.lock(preparer)?));
            }
            self.base.point("group-locked");
            for (_, tx) in &members {
                let mut state = tx.state.lock();
                while state.handles > 0 {
                    tx.drained.wait(&mut state);
                }
            }
            // Handles that stopped meanwhile, and handles of other lanes, may have chained more
            // transactions.
            if self.end_changes(&members, preparer)? {
                return Ok(members);
            }
        }
    }

    /// Ends the changes of a group whose handles have stopped. `false` if a transaction outside the
    /// group is chained to it, so that the group has to grow.
    fn end_changes(&self, members: &Members<'_>, _: &mut Preparer) -> Result<bool> {
        // Only the preparer opens transactions, so these stay the running ones.
        let running = self.lanes.running();
        let states: Vec<_> = members.iter().map(|(_, tx)| tx.state.lock()).collect();
        let missing = |edge: TxId| {
            let grouped = members.iter().any(|(lane, _)| lane.lane == edge.lane);
            !grouped && running.get(&edge.lane).is_some_and(|seq| edge.seq >= *seq)
        };
        let canary = &self.base.config.canary;
        if states.iter().any(|s| s.edges.iter().any(missing)) && !canary.group_early {
            return Ok(false);
        }
        for (_, tx) in members {
            tx.end_changes()?;
        }
        Ok(true)
    }

    fn take_snapshot(&self, tx: &Arc<Tx>, floor: Stamp, _: &mut Preparer) -> Result<InFlight> {
        let base = &self.base;
        let stamp = self.lanes.draw();
        let opened = tx.state.lock().opened.unwrap_or(stamp);
        base.point("snapshot-begins");
        let canary = &base.config.canary;
        let floor = match (canary.no_floor, canary.floor_high) {
            (true, _) => 0,
            (_, true) => stamp + 8,
            _ => floor,
        };
        let (mut snapshot, rest): (Snapshot, TxRest) = tx.snapshot(stamp, floor)?;
        if canary.drop_revokes {
            snapshot.revokes.clear();
        }
        base.point("snapshot-not-indexed");
        let homes: Vec<u64> = snapshot.images.iter().map(|i| i.nr).collect();
        self.space.list_snapshot(tx.id, stamp, opened, &homes)?;
        Ok(InFlight::new(Arc::clone(tx), opened, snapshot, rest))
    }

    /// The lowest opening stamp of the transactions that are not valid yet: of running ones only
    /// those in the lanes that `of_lane` selects. If there is none, the present stamp, with which
    /// one would open now. A record with a higher stamp may describe changes that only these
    /// transactions hold.
    fn oldest_opening(&self, of_lane: impl Fn(Lane) -> bool) -> Stamp {
        // The present stamp is read first: a transaction that opens from here on has none below it.
        let now = self.lanes.now();
        // A transaction that moves from its lane to the log is listed there before it leaves the
        // lane.
        let running = self.lanes.oldest_opening(of_lane);
        let committing = self.space.oldest_opening();
        running.into_iter().chain(committing).fold(now, Stamp::min)
    }
}
