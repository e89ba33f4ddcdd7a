//! The entry of handles into the running transaction, and their exit.

use std::sync::Arc;
use std::time::Duration;

use stetfs_ondisk::num::{count32, to_usize};
use stetfs_sync::plain::Instant;

use super::Engine;
use crate::error::{JournalError, Result};
use crate::ids::{Credits, Lane, Near};
use crate::limits::SLACK;
use crate::stats::{add_time, bump};
use crate::tx::{Phase, Tx, TxState};

impl Engine {
    /// Whether `more` credits fit into a running transaction, by its bound and by the free log
    /// space.
    pub(crate) fn fits(&self, tx: &Tx, state: &TxState, more: Credits) -> bool {
        let total = state.blocks.len() as u64 + state.reserved + u64::from(more);
        total <= self.max_tx(tx.id.lane) && self.log_fits(tx, state, more)
    }

    fn log_fits(&self, tx: &Tx, state: &TxState, more: Credits) -> bool {
        let total = state.blocks.len() as u64 + state.reserved + u64::from(more);
        let revokes = state.revokes.len() as u64;
        let need = self.base.codec.bound(total, revokes) + SLACK;
        let ring = self.space.ring(tx.id.lane);
        ring.is_ok_and(|ring| ring.room() >= need)
    }

    /// Takes a place in the running transaction of the calling thread's lane, for changes in the
    /// neighbourhood `near`.
    ///
    /// # Errors
    /// `TooLarge` if no transaction can hold so much; `Aborted` once the journal stopped.
    pub(crate) fn enter(&self, need: Credits, near: Option<Near>) -> Result<Arc<Tx>> {
        if self.lanes.count() == 0 {
            return Err(JournalError::ReadOnly);
        }
        let counters = &self.base.counters;
        let lane = self.lanes.lane(self.lane_for(need, near)?)?;
        let mut run = lane.run();
        let mut asked_others = false;
        loop {
            self.base.check()?;
            if self.records.gate().is_closed() {
                lane.wait(&mut run);
                continue;
            }
            if run.is_locked() {
                bump(&counters.waits_locked, 1);
                let begun = Instant::now();
                lane.wait(&mut run);
                add_time(&counters.waiting_locked_nanos, begun);
                continue;
            }
            let tx = run.tx().clone();
            let mut state = tx.state.lock();
            if self.fits(&tx, &state, need) {
                self.lanes.take_place(&mut state, need);
                drop(state);
                return Ok(tx);
            }
            // Full: either the transaction itself, or the log behind it.
            let log_short = !self.log_fits(&tx, &state, need);
            let something = !state.blocks.is_empty() || !state.revokes.is_empty();
            drop(state);
            if log_short && !asked_others {
                asked_others = true;
                drop(run);
                if let Some(tx) = self.borrow_place(lane.lane, need) {
                    return Ok(tx);
                }
                run = lane.run();
                continue;
            }
            asked_others = false;
            bump(&counters.waits_room, 1);
            if log_short {
                bump(&counters.forced_checkpoints, 1);
                self.space.signal.ask();
            }
            if something {
                self.want_commit(lane.lane);
            }
            // Everything that makes room signals. The timeout only limits the cost of a missed
            // signal.
            self.syncs.begins_to_wait();
            let begun = Instant::now();
            lane.wait_for(&mut run, Duration::from_millis(50));
            add_time(&counters.waiting_room_nanos, begun);
            self.syncs.end_waiting(1);
        }
    }

    /// The lane for a handle of the calling thread that asks for `need` credits.
    ///
    /// # Errors
    /// `TooLarge` if no transaction can hold so much.
    fn lane_for(&self, need: Credits, near: Option<Near>) -> Result<Lane> {
        let own = self.lanes.own(near);
        if u64::from(need) <= self.max_tx(own) {
            return Ok(own);
        }
        // The first lane is the widest (stet/cut.rs). Lanes share blocks, whichever thread is in
        // them (tx.T4).
        let max = self.max_tx(Lane(0));
        match u64::from(need) <= max {
            true => Ok(Lane(0)),
            false => Err(JournalError::TooLarge {
                need,
                max: count32(to_usize(max)),
            }),
        }
    }

    /// Takes a place in the running transaction of the lane with the most room, if that lane is
    /// less than half full. The log of the thread's own lane is full until its images are home, but
    /// the thread need not wait for that while another lane is idle. Lanes share blocks whichever
    /// thread is in them: transactions depend on each other where they have to (tx.T4).
    fn borrow_place(&self, own: Lane, need: Credits) -> Option<Arc<Tx>> {
        let others = self.space.rings();
        let others = others.filter(|(lane, ring)| *lane != own && !ring.is_half_full());
        let (roomiest, _) = others.max_by_key(|(_, ring)| ring.room())?;
        let run = self.lanes.lane(roomiest).ok()?.try_run()?;
        if run.is_locked() || self.records.gate().is_closed() {
            return None;
        }
        let tx = run.tx().clone();
        let mut state = tx.state.lock();
        if !self.fits(&tx, &state, need) {
            return None;
        }
        self.lanes.take_place(&mut state, need);
        drop(state);
        self.space.signal.ask();
        bump(&self.base.counters.borrowed, 1);
        Some(tx)
    }

    /// Gives a handle's place back, with `left` unused credits.
    pub(crate) fn leave(&self, tx: &Tx, left: Credits) {
        let mut state = tx.state.lock();
        state.reserved = state.reserved.saturating_sub(u64::from(left));
        state.handles -= 1;
        let last = state.handles == 0;
        let phase = tx.phase();
        let big = state.blocks.len() as u64 * 4 >= self.max_tx(tx.id.lane) * 3;
        drop(state);
        if phase == Phase::Locked && last {
            tx.drained.notify_all();
        } else if phase.takes_handles() && last && big {
            // Commits a large transaction early, before a handle has to wait for room.
            self.want_commit(tx.id.lane);
        }
    }
}
