//! A commit: prepare, ordered data, log, seal, validate, answer.
//!
//! * **commit.A1** A caller that asked for a point is told that it is durable only when everything
//!   in it is valid, or holds nothing to commit: this is checked after every commit, in release
//!   builds, too. Any other answer is a bug, and stops the journal.

use stetfs_block::WriteList;
use stetfs_sync::plain::Instant;

use super::Engine;
use super::in_flight::{InFlight, LaidOut, joined};
use super::log_space::Ring;
use super::prepare::Prepared;
use crate::error::{JournalError, Result};
use crate::ids::{CommitPoint, Ino, TxId};
use crate::stats::{bump, micros};

impl Engine {
    /// Commits every lane's running transaction that `point` needs, with all that is chained to it,
    /// and makes the dirty data of the inodes `data` durable under the same flush. The caller leads
    /// the queue of commits. Returns whether there was anything to commit; if not, nothing was
    /// written.
    ///
    /// # Errors
    /// The device's, or an impossible state. It is then unknown whether the group is durable.
    pub(super) fn commit_group(&self, point: &CommitPoint, data: &[Ino]) -> Result<bool> {
        let started = Instant::now();
        let base = &self.base;
        let Prepared {
            mut group,
            empty,
            recorded,
        } = self.prepare(point)?;
        if group.is_empty() {
            self.check_answer(point, &empty)?;
            return Ok(false);
        }
        let ids: Vec<TxId> = group.iter().map(InFlight::id).collect();
        for flight in &mut group {
            self.copy_ahead(&mut flight.snapshot);
            self.note_changes(&mut flight.snapshot);
        }
        self.write_group(group, [data, &recorded].concat())?;
        let supersede = |floor| self.records.supersede(floor);
        for f in self.space.validate(&self.validity, supersede)? {
            f();
        }
        for id in &ids {
            self.check_answer(&CommitPoint::from(*id), &[])?;
        }
        self.check_answer(point, &empty)?;
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

    /// Checks that every transaction of a point is valid, or was found to hold nothing (commit.A1).
    fn check_answer(&self, point: &CommitPoint, empty: &[TxId]) -> Result<()> {
        for tx in point.iter() {
            if !self.validity.has(tx)? && !empty.contains(&tx) {
                return Err(JournalError::Aborted(format!(
                    "commit.A1: a commit ended without transaction {} of lane {}, which it was asked for",
                    tx.seq, tx.lane.0
                )));
            }
        }
        Ok(())
    }

    /// Writes all transactions of a group with one write list, and seals them with one flush where
    /// the format allows that. Data that must be durable before they count is flushed before.
    fn write_group(&self, mut group: Vec<InFlight>, mut data: Vec<Ino>) -> Result<()> {
        self.must_be_awake("a transaction is to be written")?;
        let (base, canary) = (&self.base, &self.base.config.canary);
        if !canary.unordered_data {
            data.extend(group.iter().flat_map(InFlight::ordered));
        }
        data.sort_unstable();
        data.dedup();
        let mut placed = Vec::with_capacity(group.len());
        for mut flight in group.drain(..) {
            let reserved = self.make_room(&mut flight.snapshot)?;
            placed.push(flight.lay_out(base, &self.space, reserved)?);
        }
        let one_flush = placed.iter().all(|tx| tx.medium().one_flush());
        let data_first = !data.is_empty() && one_flush && !canary.late_data;
        if data_first {
            self.write_ahead(&data, &mut placed)?;
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
            let fua = barrier && one_flush && flushed && data.is_empty();
            let fua = fua && base.device.has_fua() && !list.is_empty();
            if fua {
                list.set_fua();
            }
            self.write_timed(&data, &list, &placed)?;
            placed.iter().try_for_each(LaidOut::wrote)?;
            if canary.share_early {
                self.share_early(&placed)?;
            }
            let sealing = match (fua, one_flush) {
                (true, _) => 0,
                (_, true) => 1,
                _ => placed.len(),
            };
            let mut sealing = placed.iter().take(sealing);
            sealing.try_for_each(|tx| tx.seal(barrier))
        })?;
        for tx in placed {
            self.space.list_durable(tx.end(base)?)?;
        }
        Ok(())
    }

    /// Makes the ordered data durable. The log blocks that do not yet make the transactions count
    /// are written beside it, which takes no extra time.
    fn write_ahead(&self, data: &[Ino], placed: &mut [LaidOut<'_>]) -> Result<()> {
        let payload = joined(placed.iter().map(|tx| tx.payload()))?;
        self.write_timed(data, &payload, placed)?;
        drop(payload);
        self.clock.flush()?;
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
