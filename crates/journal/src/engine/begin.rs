//! Entering and leaving the running transaction.

use std::sync::Arc;
use std::time::Duration;

use stetfs_ondisk::num::{count16, count32, to_usize};
use stetfs_sync::plain::{Instant, atomic::Ordering};

use super::Inner;
use super::lane::{LEAST_TX, SLACK};
use crate::error::{JournalError, Result};
use crate::ids::{Credits, Lane};
use crate::policy::Codec;
use crate::stats::{add_time, bump};
use crate::tx::{Phase, Tx, TxState};

/// The most blocks one transaction may hold: a quarter of its ring (jbd2:
/// `j_max_transaction_buffers`) less what the log needs around the images, and a quarter of
/// the memory. The ring has `ring` blocks of `block_size` bytes; `memory` is in bytes.
pub(crate) fn max_tx(codec: &dyn Codec, ring: u64, memory: u64, block_size: u64) -> u64 {
    let blocks = most_blocks(codec, ring);
    let memory = memory / 4 / block_size;
    blocks.min(memory.max(64)).max(LEAST_TX)
}

/// The most blocks that a transaction in a ring of so many may hold, whatever the memory.
pub(crate) fn most_blocks(codec: &dyn Codec, ring: u64) -> u64 {
    codec.most_images(ring, SLACK)
}

impl Inner {
    /// See [`max_tx`].
    pub(crate) fn max_tx(&self, lane: u16) -> u64 {
        let ring = self.lanes.get(usize::from(lane));
        max_tx(
            &*self.codec,
            ring.map_or(0, |lane| lane.medium.capacity()),
            self.config.memory,
            self.cache.block_size() as u64,
        )
    }

    /// See [`Journal::set_margin`](super::Journal::set_margin).
    pub(crate) fn margin(&self) -> Credits {
        self.margin.load(Ordering::Acquire)
    }

    /// Whether `more` credits fit into a running transaction: into its bound, and into the log.
    pub(crate) fn fits(&self, tx: &Tx, state: &TxState, more: Credits) -> bool {
        let total = state.blocks.len() as u64 + state.reserved + u64::from(more);
        total <= self.max_tx(tx.id.lane.0) && self.log_fits(tx, state, more)
    }

    fn log_fits(&self, tx: &Tx, state: &TxState, more: Credits) -> bool {
        let total = state.blocks.len() as u64 + state.reserved + u64::from(more);
        let need = self.codec.bound(total, state.revokes.len() as u64) + SLACK;
        self.lane(tx.id.lane).is_ok_and(|lane| lane.room() >= need)
    }

    /// Takes a place in the running transaction of the thread's lane.
    pub(crate) fn enter(&self, need: Credits) -> Result<Arc<Tx>> {
        if self.lanes.is_empty() {
            return Err(JournalError::ReadOnly);
        }
        let mut lane = Lane(self.ordering.lane().0 % count16(self.lanes.len()));
        if u64::from(need) > self.max_tx(lane.0) {
            // None is wider than the first (stet/cut.rs). Lanes share blocks, whoever is in them
            // (tx.T4).
            lane = Lane(0);
            let max = self.max_tx(lane.0);
            if u64::from(need) > max {
                return Err(JournalError::TooLarge {
                    need,
                    max: count32(to_usize(max)),
                });
            }
        }
        let lane = self.lane(lane)?;
        let mut run = lane.run.lock();
        let mut asked_others = false;
        loop {
            self.check()?;
            if self.gate.is_closed() {
                lane.changed.wait(&mut run);
                continue;
            }
            if run.locked {
                bump(&self.counters.waits_locked, 1);
                let begun = Instant::now();
                lane.changed.wait(&mut run);
                add_time(&self.counters.waiting_locked_nanos, begun);
                continue;
            }
            let tx = run.tx.clone();
            let mut state = tx.state.lock();
            if self.fits(&tx, &state, need) {
                self.take_place(&mut state, need);
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
                run = lane.run.lock();
                continue;
            }
            asked_others = false;
            bump(&self.counters.waits_room, 1);
            if log_short {
                bump(&self.counters.forced_checkpoints, 1);
                self.checkpoint_signal.ask();
            }
            if something {
                self.commits.want_commit();
            }
            // The timeout only bounds the cost of a missed cause; every cause signals.
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let begun = Instant::now();
            lane.changed.wait_for(&mut run, Duration::from_millis(50));
            add_time(&self.counters.waiting_room_nanos, begun);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn take_place(&self, state: &mut TxState, need: Credits) {
        state.handles += 1;
        state.touched.get_or_insert_with(Instant::now);
        state
            .opened
            .get_or_insert_with(|| self.stamp.load(Ordering::Acquire));
        state.reserved += u64::from(need);
    }

    /// Takes a place in the running transaction of the lane with the most room, if not half of that
    /// is used: the log of the thread's lane is full until its images are home, but nobody need
    /// wait for them while another lane is idle. Lanes share blocks whoever is in them, so that
    /// this one's transaction depends on the other's where it has to (tx.T4).
    fn borrow_place(&self, own: Lane, need: Credits) -> Option<Arc<Tx>> {
        let others = self.lanes.iter();
        let others = others.filter(|lane| lane.lane != own && !lane.is_half_full());
        let run = others.max_by_key(|lane| lane.room())?.run.try_lock()?;
        if run.locked || self.gate.is_closed() {
            return None;
        }
        let tx = run.tx.clone();
        let mut state = tx.state.lock();
        if !self.fits(&tx, &state, need) {
            return None;
        }
        self.take_place(&mut state, need);
        drop(state);
        self.checkpoint_signal.ask();
        bump(&self.counters.borrowed, 1);
        Some(tx)
    }

    /// Gives a place back, with `left` unused credits.
    pub(crate) fn leave(&self, tx: &Tx, left: Credits) {
        let mut state = tx.state.lock();
        state.reserved = state.reserved.saturating_sub(u64::from(left));
        state.handles -= 1;
        let last = state.handles == 0;
        let phase = state.phase;
        let big = state.blocks.len() as u64 * 4 >= self.max_tx(tx.id.lane.0) * 3;
        drop(state);
        if phase == Phase::Locked && last {
            tx.drained.notify_all();
        } else if phase.takes_handles() && last && big {
            // A size commit, before anybody has to wait for one.
            self.commits.want_commit();
        }
    }

    pub(crate) fn throttle(&self) -> Result<()> {
        let limit = self.pinned_limit();
        if self.pinned.load(Ordering::Relaxed) <= limit {
            return self.check();
        }
        bump(&self.counters.waits_room, 1);
        let begun = Instant::now();
        let mut log = self.log.lock();
        while self.pinned.load(Ordering::Relaxed) > limit {
            self.check()?;
            self.checkpoint_signal.ask();
            self.log_changed
                .wait_for(&mut log, Duration::from_millis(100));
        }
        add_time(&self.counters.waiting_room_nanos, begun);
        self.check()
    }
}
