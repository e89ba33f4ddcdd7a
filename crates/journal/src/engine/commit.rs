//! A commit: prepare, ordered data, log, seal, validate, answer. Several may be under way, each led
//! by a thread of its own; only `prepare` is for one at a time.
//!
//! * **commit.A1** A caller that asked for a point is told that it is durable only when everything
//!   in it is valid and settled, or holds nothing to commit. What it waits for is committed by it
//!   or by another thread already: this is checked in each commit, in release builds, too.
//! * **commit.A2** A transaction is written to its lane when the one before it is settled. So only
//!   the last frame of a lane can be torn, and the scan takes any other that is for damage.
//!
//! A commit waits for older ones alone: for those of its lanes before it writes (commit.A2), for
//! those that it depends on before it answers, and for all of them where it needs room (room.W1).

use stetfs_block::WriteList;
use stetfs_sync::plain::Instant;

use super::Engine;
use super::flush_clock::Coming;
use super::in_flight::{InFlight, LaidOut, joined};
use super::log_space::Ring;
use super::prepare::Prepared;
use crate::error::Result;
use crate::ids::{CommitPoint, Ino, Stamp, TxId};
use crate::stats::{bump, micros};

impl Engine {
    /// Commits every lane's running transaction that `point` needs, with all that is chained to it,
    /// and makes the dirty data of the inodes `data` durable under the same flush; then waits for
    /// what other threads commit of it. The caller leads a queue of commits. Returns whether it
    /// committed anything; if not, nothing was written.
    ///
    /// # Errors
    /// The device's, or an impossible state. It is then unknown whether the group is durable.
    pub(super) fn commit_group(&self, point: &CommitPoint, data: &[Ino]) -> Result<bool> {
        let started = Instant::now();
        let base = &self.base;
        let coming = self.clock.coming();
        let Prepared {
            mut group,
            needed,
            recorded,
        } = self.prepare(point)?;
        if group.is_empty() {
            drop(coming);
            self.await_answer(&needed)?;
            return Ok(false);
        }
        base.point("group-prepared");
        let ids: Vec<TxId> = group.iter().map(InFlight::id).collect();
        for flight in &mut group {
            self.copy_ahead(&mut flight.snapshot);
            self.note_changes(&mut flight.snapshot);
        }
        self.await_turn(&ids)?;
        self.write_group(group, [data, &recorded].concat(), coming)?;
        let supersede = |floor| self.records.supersede(floor);
        let (valid, callbacks) = self.space.validate(&self.validity, supersede)?;
        if base.config.canary.answer_unsettled {
            self.validity.settle(&valid);
        }
        base.point("valid-not-settled");
        for f in callbacks {
            f();
        }
        self.validity.settle(&valid);
        self.await_answer(&needed)?;
        let is_half_full = |id: &TxId| self.space.ring(id.lane).is_ok_and(Ring::is_half_full);
        if ids.iter().any(is_half_full) {
            self.space.signal.look();
        }
        bump(&base.counters.commits, ids.len() as u64);
        let took = started.elapsed();
        bump(&base.counters.commit_micros, micros(took));
        base.times.commit.add(took);
        Ok(true)
    }

    /// Waits until what a commit was asked for is settled (commit.A1).
    fn await_answer(&self, needed: &CommitPoint) -> Result<()> {
        let check = || self.base.check();
        self.validity.await_settled(needed, check)
    }

    /// Waits until the transactions before these, each in its lane, are settled (commit.A2).
    fn await_turn(&self, ids: &[TxId]) -> Result<()> {
        if self.base.config.canary.out_of_turn {
            return Ok(());
        }
        let mut before = CommitPoint::none();
        for tx in ids {
            let seq = tx.seq.saturating_sub(1);
            before.add(TxId { seq, ..*tx });
        }
        self.await_answer(&before)
    }

    /// Writes all transactions of a group with one write list, and seals them with one flush where
    /// the format allows that. Data that must be durable before they count is flushed before.
    fn write_group(
        &self,
        mut group: Vec<InFlight>,
        mut data: Vec<Ino>,
        coming: Coming<'_>,
    ) -> Result<()> {
        self.must_be_awake("a transaction is to be written")?;
        let (base, canary) = (&self.base, &self.base.config.canary);
        if !canary.unordered_data {
            data.extend(group.iter().flat_map(InFlight::ordered));
        }
        data.sort_unstable();
        data.dedup();
        let stamps = group.iter().map(|flight| flight.snapshot.stamp);
        let oldest = stamps.min().unwrap_or(Stamp::MAX);
        let mut placed = Vec::with_capacity(group.len());
        for mut flight in group.drain(..) {
            let reserved = self.make_room(&mut flight.snapshot, oldest)?;
            placed.push(flight.lay_out(base, &self.space, reserved)?);
        }
        let flush_seals = placed.iter().all(|tx| tx.medium().flush_seals());
        let data_first = !data.is_empty() && flush_seals && !canary.late_data;
        if data_first {
            self.write_ahead(&data, &mut placed, &coming)?;
            data.clear();
        }
        if !canary.unmarked_start {
            let starts: Vec<_> = placed.iter().map(LaidOut::start).collect();
            self.space.mark_starts(&starts, self.clock.has_barrier())?;
        }
        self.clock.timed(|barrier| {
            let mut list = joined(placed.iter().map(|tx| tx.blocks(barrier)))?;
            // All earlier writes that this commit relies on are durable, so only the frames
            // themselves need FUA.
            let flushed = data_first || base.device.is_flushed() || canary.fua_early;
            let fua = barrier && flush_seals && flushed && data.is_empty();
            let fua = fua && base.device.has_fua() && !list.is_empty();
            if fua {
                list.set_fua();
            }
            self.write_timed(&data, &list, &placed)?;
            placed.iter().try_for_each(LaidOut::wrote)?;
            if canary.share_early {
                self.share_early(&placed)?;
            }
            match (fua, flush_seals) {
                (true, _) => Ok(()),
                (_, true) => coming.flush(),
                _ => placed.iter().try_for_each(|tx| tx.seal(barrier)),
            }
        })?;
        drop(coming);
        // A failure elsewhere may have dropped writes of this group.
        base.check()?;
        for tx in placed {
            self.space.list_durable(tx.end(base)?)?;
        }
        Ok(())
    }

    /// Makes the ordered data durable. The log blocks that do not yet make the transactions count
    /// are written beside it, which takes no extra time.
    fn write_ahead(
        &self,
        data: &[Ino],
        placed: &mut [LaidOut<'_>],
        coming: &Coming<'_>,
    ) -> Result<()> {
        let payload = joined(placed.iter().map(|tx| tx.payload()))?;
        self.write_timed(data, &payload, placed)?;
        drop(payload);
        self.clock.timed(|_| coming.flush())?;
        placed.iter_mut().for_each(LaidOut::payload_went_out);
        Ok(())
    }

    /// Writes data home and blocks of a log, and tells the log how long that took.
    fn write_timed(&self, data: &[Ino], list: &WriteList<'_>, log: &[LaidOut<'_>]) -> Result<()> {
        let started = Instant::now();
        self.base.write_data(data, list)?;
        if let Some(first) = log.first().filter(|_| !list.is_empty()) {
            first.medium().sent(list.bytes(), started.elapsed());
        }
        Ok(())
    }

    /// A deliberate fault: images that are verbatim in the log are shared home although their
    /// transaction does not count yet.
    fn share_early(&self, placed: &[LaidOut<'_>]) -> Result<()> {
        for tx in placed {
            self.space.send_unlisted(&tx.verbatim()?)?;
        }
        Ok(())
    }
}
