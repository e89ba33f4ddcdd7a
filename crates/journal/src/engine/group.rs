//! Which running transactions commit together: a lead locks those that its point names and all that is chained to them, waits for their
//! handles, and ends the changes of all of them in one moment. Groups that share nothing form side by side.
//!
//! Invariants:
//! * **G1** A locked transaction belongs to one group that forms, and the lead of that group commits it. Where two groups need a
//!   transaction of each other they become one; the lead that has none left waits until the other's are valid.
//! * **G2** Groups end their changes one after another, and draw their stamps then. So what a transaction depends on is in its group,
//!   or ended its changes before and has a lower stamp: who waits for another waits for one that does not wait for him.
//! * **G3** Where files have records a group is all that runs, chained: a record goes on top of one moment of the volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Inner;
use crate::error::Result;
use crate::ids::{CommitPoint, Lane, Stamp, TxId};
use crate::tx::{Phase, Tx, TxState};

/// The groups that form.
#[derive(Default)]
pub(crate) struct Forming {
    owners: Mutex<Owners>,
    /// A handle of a locked transaction stopped, or a group was taken over.
    changed: Condvar,
}

#[derive(Default)]
struct Owners {
    /// The group that each lane's running transaction is locked for.
    of_lane: Vec<Option<u64>>,
    /// The newest transaction of each lane that ended its changes.
    ended: Vec<u64>,
    /// The last group that began to form.
    last: u64,
}

/// Transactions whose changes have ended, all at once.
pub(super) struct Group {
    pub(super) members: Vec<Member>,
    /// Records with stamps up to this are superseded once the group is valid.
    pub(super) floor: Stamp,
}

/// One of them.
pub(super) struct Member {
    pub(super) tx: Arc<Tx>,
    /// Its place in the order of commits.
    pub(super) stamp: Stamp,
}

impl Forming {
    /// For lanes whose newest valid transactions are these.
    pub(crate) fn new(valid: impl Iterator<Item = u64>) -> Forming {
        let ended: Vec<u64> = valid.collect();
        Forming {
            owners: Mutex::new(Owners {
                of_lane: vec![None; ended.len()],
                ended,
                last: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Those that wait look again.
    pub(crate) fn wake(&self) {
        let _owners = self.owners.lock();
        self.changed.notify_all();
    }
}

impl Owners {
    fn owner(&self, lane: Lane) -> Option<u64> {
        *self.of_lane.get(usize::from(lane.0))?
    }

    fn set(&mut self, lane: Lane, owner: Option<u64>) {
        if let Some(mine) = self.of_lane.get_mut(usize::from(lane.0)) {
            *mine = owner;
        }
    }

    fn has_ended(&self, tx: TxId) -> bool {
        let ended = self.ended.get(usize::from(tx.lane.0));
        ended.is_some_and(|seq| *seq >= tx.seq)
    }
}

impl Inner {
    /// Ends the changes of the transactions that `point` needs; none where there are none, or where another lead commits them.
    pub(super) fn form(&self, point: &CommitPoint) -> Result<Option<Group>> {
        let mut owners = self.forming.owners.lock();
        owners.last += 1;
        let me = owners.last;
        let mut point = point.clone();
        loop {
            self.check()?;
            let members = self.grow(&mut owners, me, &point);
            if members.is_empty() {
                return Ok(None);
            }
            // From here on the members' own edges say what is needed (G1).
            point = CommitPoint::none();
            if let Some(group) = self.end_changes(&mut owners, &members) {
                return Ok(Some(group).filter(|group| !group.members.is_empty()));
            }
            self.forming.changed.wait(&mut owners);
        }
    }

    /// What is locked for this group, after it was grown by what `point` and its members need.
    fn grow(
        &self,
        owners: &mut MutexGuard<'_, Owners>,
        me: u64,
        point: &CommitPoint,
    ) -> Vec<Arc<Tx>> {
        let mut wanted = point.clone();
        if self.scheme.files.is_some() && !point.is_none() {
            wanted.merge(&self.running());
        }
        let mut members: Vec<Arc<Tx>> = self.locked_for(owners, me);
        loop {
            members
                .iter()
                .for_each(|tx| wanted.merge(&tx.state.lock().edges));
            wanted.iter().for_each(|id| self.claim(owners, me, id));
            let grown = self.locked_for(owners, me);
            if grown.len() == members.len() {
                return grown;
            }
            members = grown;
        }
    }

    fn locked_for(&self, owners: &Owners, me: u64) -> Vec<Arc<Tx>> {
        let mine = self
            .slots
            .iter()
            .filter(|slot| owners.owner(slot.lane) == Some(me));
        mine.map(|slot| Arc::clone(&slot.run.lock().tx)).collect()
    }

    /// Locks a transaction for a group, or takes over the group it is locked for.
    fn claim(&self, owners: &mut Owners, me: u64, id: TxId) {
        let Some(slot) = self.slots.get(usize::from(id.lane.0)) else {
            return;
        };
        if owners.has_ended(id) {
            return;
        }
        match owners.owner(id.lane) {
            Some(owner) if owner == me => {}
            Some(other) => {
                let theirs = owners.of_lane.iter_mut().filter(|o| **o == Some(other));
                theirs.for_each(|o| *o = Some(me));
                self.forming.changed.notify_all();
            }
            None => {
                let mut run = slot.run.lock();
                if self.scheme.files.is_some() || !run.tx.is_untouched() {
                    run.locked = true;
                    run.tx.state.lock().phase = Phase::Locked;
                    owners.set(id.lane, Some(me));
                }
            }
        }
    }

    /// Ends the changes of a group whose handles have stopped, unless something is chained to it that is not in it (T4).
    fn end_changes(&self, owners: &mut Owners, members: &[Arc<Tx>]) -> Option<Group> {
        // What the group makes valid are no changes of others: records of those stay alive. Nor are records since this moment.
        let grouped = |lane| members.iter().any(|tx| tx.id.lane == lane);
        let held = *self.held.lock();
        let floor = held.unwrap_or_else(|| self.oldest_opening(|lane| !grouped(lane)));
        let mut states: Vec<MutexGuard<'_, TxState>> =
            members.iter().map(|tx| tx.state.lock()).collect();
        let missing = |edge: TxId| !grouped(edge.lane) && !owners.has_ended(edge);
        if states
            .iter()
            .any(|s| s.handles > 0 || s.edges.iter().any(missing))
        {
            return None;
        }
        let touched: Vec<TxId> = members
            .iter()
            .zip(&states)
            .filter(|(_, s)| !s.is_empty())
            .map(|(tx, _)| tx.id)
            .collect();
        let mut group = Vec::with_capacity(touched.len());
        for (tx, state) in members.iter().zip(&mut states) {
            owners.set(tx.id.lane, None);
            if state.is_empty() {
                state.phase = Phase::Running;
                continue;
            }
            state.phase = Phase::Snapshot;
            if self.scheme.files.is_some() {
                let others = touched.iter().filter(|id| **id != tx.id);
                others.for_each(|id| state.edges.add(*id));
            }
            if let Some(ended) = owners.ended.get_mut(usize::from(tx.id.lane.0)) {
                *ended = tx.id.seq;
            }
            group.push(Member {
                tx: Arc::clone(tx),
                stamp: self.stamp.fetch_add(1, Ordering::AcqRel) + 1,
            });
        }
        drop(states);
        for tx in members {
            if !group.iter().any(|member| member.tx.id == tx.id) {
                self.unlock(tx.id.lane, None);
            }
        }
        Some(Group {
            members: group,
            floor,
        })
    }

    /// Lets handles into a lane again, into its next transaction if there is one.
    pub(super) fn unlock(&self, lane: Lane, next: Option<Arc<Tx>>) {
        if let Some(slot) = self.slots.get(usize::from(lane.0)) {
            let mut run = slot.run.lock();
            if let Some(next) = next {
                run.tx = next;
            }
            run.locked = false;
            slot.changed.notify_all();
        }
    }

    /// The running transactions.
    pub(super) fn running(&self) -> CommitPoint {
        let mut point = CommitPoint::none();
        self.slots
            .iter()
            .for_each(|slot| point.add(slot.run.lock().tx.id));
        point
    }
}
