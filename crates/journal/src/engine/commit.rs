//! Commit: lock, snapshot, ordered data, log, seal. [`validate`](super::validate) finds what is
//! valid then.
//!
//! * **commit.A1** Whoever asked for a point is told that it is durable only when it is valid, or
//!   when there was nothing in what it names: looked at after every commit, in release builds, too.
//!   Anything else is a state that cannot be, and stops the journal.

use std::collections::HashMap;
use std::sync::Arc;

use stetfs_block::WriteList;
use stetfs_sync::plain::{Instant, atomic::Ordering, mended};

use super::Inner;
use super::checkpoint_list::{Durable, Pending};
use super::lane::LaneState;
use crate::error::{JournalError, Result};
use crate::ids::{CommitPoint, Ino, Lane, Stamp, TxId};
use crate::policy::{Encoded, HomeImage, LogTail, Medium};
use crate::stats::{bump, micros};
use crate::tx::{Phase, Snapshot, Tx, TxRest};

/// A snapshot on its way into the log.
struct Committing {
    snapshot: Snapshot,
    rest: TxRest,
}

/// What commits together, and what there was nothing of to commit.
struct Group<'s> {
    members: Vec<(&'s LaneState, Arc<Tx>)>,
    /// Transactions that were asked for and hold nothing.
    empty: Vec<TxId>,
}

/// Has a group count only whole: each of its transactions supersedes records whose changes the
/// others hold (record.F3).
fn chain(group: &[(&LaneState, Arc<Tx>)]) {
    for (_, tx) in group {
        let others = group.iter().filter(|(_, other)| other.id != tx.id);
        let mut state = tx.state.lock();
        others.for_each(|(_, other)| state.edges.add(other.id));
    }
}

/// All of these in one list.
fn joined<'a>(lists: impl Iterator<Item = Result<WriteList<'a>>>) -> Result<WriteList<'a>> {
    let mut lists = lists;
    let mut all = lists.next().transpose()?.unwrap_or_default();
    for list in lists {
        all.extend(&list?);
    }
    Ok(all)
}

impl Inner {
    /// Commits every lane's running transaction that `point` needs, with all that is chained to
    /// it, and makes the dirty data of `data` durable under the same flush.
    /// The lead of the queue of commits is held. Returns whether there was anything to commit; if
    /// not, nothing was written.
    pub(crate) fn commit_group(&self, point: &CommitPoint, data: &[Ino]) -> Result<bool> {
        let started = Instant::now();
        let Group {
            members: group,
            empty,
        } = self.lock_group(point)?;
        if group.is_empty() {
            self.check_answer(point, &empty)?;
            return Ok(false);
        }
        if self.records.is_some() {
            chain(&group);
        }
        // What the group makes valid are no changes of others: records of those stay alive. Records
        // since the snapshots are not in them either.
        let grouped = |nr| group.iter().any(|(lane, _)| lane.lane == nr);
        let floor = self
            .held
            .lock()
            .unwrap_or_else(|| self.oldest_opening(|lane| !grouped(lane)));
        let mut all = Vec::with_capacity(group.len());
        for (lane, tx) in &group {
            all.push(self.take_snapshot(lane, tx, floor)?);
        }
        self.point("snapshots-taken");
        // After the floor is known (record.F4).
        let mut data = data.to_vec();
        if !self.config.canary.leave_recorded {
            data.append(&mut self.recorded.take(floor));
        }
        for (lane, tx) in &group {
            let mut run = lane.run.lock();
            let next = TxId {
                lane: lane.lane,
                seq: tx.id.seq + 1,
            };
            run.tx = Arc::new(Tx::new(next));
            run.locked = false;
            lane.changed.notify_all();
        }
        for tx in &mut all {
            self.copy_ahead(&mut tx.snapshot);
            self.note_changes(&mut tx.snapshot);
        }
        self.write_group(all, data)?;
        for f in self.validate()? {
            f();
        }
        for (_, tx) in &group {
            self.check_answer(&CommitPoint::from(tx.id), &[])?;
        }
        self.check_answer(point, &empty)?;
        if group.iter().any(|(lane, _)| lane.is_half_full()) {
            self.checkpoint_signal.look();
        }
        bump(&self.counters.commits, group.len() as u64);
        let took = started.elapsed();
        bump(&self.counters.commit_micros, micros(took));
        self.times.commit.add(took);
        Ok(true)
    }

    /// Fails unless all that a point names is valid, or was found to hold nothing (commit.A1).
    fn check_answer(&self, point: &CommitPoint, empty: &[TxId]) -> Result<()> {
        for tx in point.iter() {
            if self.valid_seq(tx.lane)? < tx.seq && !empty.contains(&tx) {
                return Err(JournalError::Aborted(format!(
                    "commit.A1: a commit ended without transaction {} of lane {}, which it was asked for",
                    tx.seq, tx.lane.0
                )));
            }
        }
        Ok(())
    }

    /// Locks the running transactions that must commit together, waits for their handles, and ends
    /// their changes all at once (tx.T4). No lane opens before all their snapshots are taken.
    fn lock_group(&self, point: &CommitPoint) -> Result<Group<'_>> {
        let mut group: Vec<(&LaneState, Arc<Tx>)> = Vec::new();
        let mut empty = Vec::new();
        // One without changes supersedes records, too.
        let supersedes = self.recorded.since().is_some();
        loop {
            let mut want = self.closure(point)?;
            for (_, tx) in &group {
                for (lane, seq) in self.closure(&CommitPoint::from(tx.id))? {
                    let entry = want.entry(lane).or_insert(0);
                    *entry = (*entry).max(seq);
                }
            }
            for lane in &self.lanes {
                let Some(seq) = want.get(&lane.lane) else {
                    continue;
                };
                let mut run = lane.run.lock();
                if run.tx.id.seq > *seq || run.locked {
                    continue;
                }
                if run.tx.is_untouched() && !supersedes {
                    empty.push(run.tx.id);
                    continue;
                }
                run.locked = true;
                run.tx.state.lock().phase = Phase::Locked;
                group.push((lane, run.tx.clone()));
            }
            self.point("group-locked");
            for (_, tx) in &group {
                let mut state = tx.state.lock();
                while state.handles > 0 {
                    tx.drained.wait(&mut state);
                }
            }
            // Those handles, and handles of other lanes, may have chained more.
            if self.end_changes(&group) {
                return Ok(Group {
                    members: group,
                    empty,
                });
            }
        }
    }

    /// Ends the changes of a group whose handles have stopped, unless something is chained to it
    /// that is not in it.
    fn end_changes(&self, group: &[(&LaneState, Arc<Tx>)]) -> bool {
        // Only who commits opens transactions, so these stay the running ones.
        let running: HashMap<Lane, u64> = self
            .lanes
            .iter()
            .map(|lane| (lane.lane, lane.run.lock().tx.id.seq))
            .collect();
        let mut states: Vec<_> = group.iter().map(|(_, tx)| tx.state.lock()).collect();
        let missing = |edge: TxId| {
            let grouped = group.iter().any(|(lane, _)| lane.lane == edge.lane);
            !grouped && running.get(&edge.lane).is_some_and(|seq| edge.seq >= *seq)
        };
        if states.iter().any(|s| s.edges.iter().any(missing)) && mended("tx.group") {
            return false;
        }
        for state in &mut states {
            state.phase = Phase::Snapshot;
        }
        true
    }

    fn take_snapshot(&self, lane: &LaneState, tx: &Tx, floor: Stamp) -> Result<Committing> {
        let stamp = self.stamp.fetch_add(1, Ordering::AcqRel) + 1;
        let opened = tx.state.lock().opened.unwrap_or(stamp);
        self.point("snapshot-begins");
        let canary = &self.config.canary;
        let floor = match (canary.no_floor, canary.floor_high) {
            (true, _) => 0,
            (_, true) => stamp + 8,
            _ => floor,
        };
        let (mut snapshot, rest) = tx.snapshot(stamp, floor);
        if canary.drop_revokes {
            snapshot.revokes.clear();
        }
        self.point("snapshot-not-indexed");
        let homes: Vec<u64> = snapshot.images.iter().map(|i| i.nr).collect();
        let mut log = self.log.lock();
        log.index_images(tx.id, &homes);
        let lane_log = log.lane(lane.lane)?;
        lane_log.committing = Some((tx.id.seq, lane_log.head));
        lane_log.next_seq = tx.id.seq + 1;
        lane_log.opened.get_or_insert(opened);
        drop(log);
        self.pinned.fetch_add(homes.len() as u64, Ordering::Relaxed);
        Ok(Committing { snapshot, rest })
    }

    /// Writes the transactions of a group, whatever their number, with one write list, and seals
    /// them with one flush where their format allows. What must be durable before they count
    /// has a flush before.
    fn write_group(&self, mut group: Vec<Committing>, mut data: Vec<Ino>) -> Result<()> {
        self.must_be_awake("a transaction is to be written")?;
        let canary = &self.config.canary;
        let lanes = group.iter().map(|tx| self.lane(tx.snapshot.id.lane));
        let media = lanes.map(|lane| Ok(&*lane?.medium));
        let media: Vec<&dyn Medium> = media.collect::<Result<_>>()?;
        let one_flush = media.iter().all(|medium| medium.one_flush());
        if !canary.unordered_data {
            let ordered = group.iter().flat_map(|tx| &tx.rest.ordered);
            data.extend(ordered);
        }
        data.sort_unstable();
        data.dedup();
        let data_first = !data.is_empty() && one_flush && !canary.late_data;
        let placed = group.iter_mut().map(|tx| self.place(&mut tx.snapshot));
        let mut placed = placed.collect::<Result<Vec<_>>>()?;
        if data_first {
            self.write_ahead(&data, &media, &mut placed)?;
            data.clear();
        }
        if !canary.unmarked_start {
            self.mark_starts(&group, &media, &placed)?;
        }
        self.timed(|barrier| {
            let lists = placed.iter().zip(&media);
            let lists = lists.map(|((at, tx), medium)| medium.blocks(*at, tx, barrier));
            let mut list = joined(lists)?;
            // What this commit promises of other writes is kept: they are durable. So the frames
            // alone need to become so.
            let flushed = data_first || self.device.is_flushed() || canary.fua_early;
            let fua = barrier && one_flush && flushed && data.is_empty();
            let fua = fua && self.device.has_fua() && !list.is_empty();
            if fua {
                list.set_fua();
            }
            self.write_timed(&data, &list, &media)?;
            if canary.share_early {
                self.share_early(&group, &media, &placed)?;
            }
            let sealing = match (fua, one_flush) {
                (true, _) => 0,
                (_, true) => 1,
                _ => media.len(),
            };
            for ((at, tx), medium) in placed.iter().zip(&media).take(sealing) {
                medium.seal(*at, tx, barrier)?;
            }
            Ok(())
        })?;
        for ((tx, medium), (at, encoded)) in group.into_iter().zip(media).zip(placed) {
            self.note_durable(tx, medium, at, &encoded)?;
        }
        Ok(())
    }

    /// Makes the ordered data durable. What of the transactions does not make them count goes out
    /// beside it: it costs no time of its own.
    fn write_ahead(
        &self,
        data: &[Ino],
        media: &[&dyn Medium],
        placed: &mut [(u64, Encoded)],
    ) -> Result<()> {
        let lists = placed.iter().zip(media);
        let payload = joined(lists.map(|((at, tx), medium)| medium.payload(*at, tx)))?;
        self.write_timed(data, &payload, media)?;
        drop(payload);
        self.flush()?;
        placed.iter_mut().for_each(|(_, tx)| tx.payload_went_out());
        Ok(())
    }

    /// Writes data home and blocks of a log, which is told how long that took.
    fn write_timed(&self, data: &[Ino], list: &WriteList<'_>, media: &[&dyn Medium]) -> Result<()> {
        let started = Instant::now();
        self.write_data(data, list)?;
        if let Some(medium) = media.first().filter(|_| !list.is_empty()) {
            medium.sent(list.bytes(), started.elapsed());
        }
        Ok(())
    }

    /// A deliberate fault: what stands verbatim in the log goes home though its transaction does
    /// not count yet.
    fn share_early(
        &self,
        group: &[Committing],
        media: &[&dyn Medium],
        placed: &[(u64, Encoded)],
    ) -> Result<()> {
        for ((tx, medium), (at, encoded)) in group.iter().zip(media).zip(placed) {
            let places = medium.places(*at, encoded)?;
            let images = tx.snapshot.images.iter().zip(places);
            let images = images.filter(|(_, place)| place.is_some());
            let images = images.map(|(image, place)| HomeImage {
                nr: image.nr,
                page: Arc::clone(&image.page),
                place,
            });
            let images: Vec<HomeImage> = images.collect();
            self.home.send(&*self.device, &images)?;
        }
        Ok(())
    }

    /// Takes room for a transaction in its lane, and lays it out: where it begins, and its blocks.
    fn place(&self, tx: &mut Snapshot) -> Result<(u64, Encoded)> {
        let reserved = self.make_room(tx)?;
        let id = tx.id;
        let LaneState { medium, free, .. } = self.lane(id.lane)?;
        free.fetch_sub(reserved, Ordering::AcqRel);
        // Nobody else moves the head.
        let at = self.log.lock().lane(id.lane)?.head;
        let encoded = self.codec.encode(tx, &mut |from, blocks| {
            medium.write_early(medium.advance(at, from), blocks)
        })?;
        let unused = reserved.checked_sub(encoded.blocks()).ok_or_else(|| {
            let blocks = encoded.blocks();
            JournalError::Aborted(format!(
                "a transaction takes {blocks} log blocks, bound {reserved}"
            ))
        })?;
        free.fetch_add(unused, Ordering::AcqRel);
        self.log.lock().lane(id.lane)?.head = medium.advance(at, encoded.blocks());
        Ok((at, encoded))
    }

    /// Where the header says "empty" it must point to a transaction before that one counts: all of
    /// a group in one write.
    fn mark_starts(
        &self,
        group: &[Committing],
        media: &[&dyn Medium],
        placed: &[(u64, Encoded)],
    ) -> Result<()> {
        let starts = group.iter().zip(media).zip(placed);
        let mut starts = starts.filter(|((_, medium), _)| medium.tail().at.is_none());
        let Some(mut last) = starts.next() else {
            return Ok(());
        };
        let _alone = self.tails.lock();
        let tail = |tx: &Committing, at: u64| LogTail {
            seq: tx.snapshot.id.seq,
            at: Some(at),
        };
        for next in starts {
            let ((tx, medium), (at, _)) = std::mem::replace(&mut last, next);
            medium.note_tail(tail(tx, *at));
        }
        let ((tx, medium), (at, _)) = last;
        medium.set_tail(tail(tx, *at), self.barrier())
    }

    /// A transaction is durable: counts it, and lists it for [`validate`](Self::validate).
    fn note_durable(
        &self,
        tx: Committing,
        medium: &dyn Medium,
        at: u64,
        encoded: &Encoded,
    ) -> Result<()> {
        let Committing { snapshot, rest, .. } = tx;
        let id = snapshot.id;
        bump(&self.counters.blocks_logged, encoded.blocks());
        bump(&self.counters.edges, snapshot.edges.iter().count() as u64);
        let block_size = self.cache.block_size() as u64;
        let unit = medium.unit().unwrap_or(block_size);
        bump(&self.counters.bytes_logged, encoded.blocks() * unit);
        bump(
            &self.counters.bytes_packed,
            snapshot.images.len() as u64 * block_size,
        );
        let packing = encoded.packing;
        bump(&self.counters.chunks_raw, packing.raw);
        bump(&self.counters.chunks_lz4, packing.lz4);
        bump(&self.counters.chunks_zstd, packing.zstd);
        bump(&self.counters.packing_micros, micros(packing.time));

        let homes = snapshot.images.iter().map(|i| i.nr).collect();
        let images = snapshot
            .images
            .into_iter()
            .zip(medium.places(at, encoded)?)
            .map(|(image, place)| {
                (
                    image.nr,
                    Pending {
                        id,
                        stamp: snapshot.stamp,
                        page: image.page,
                        block: image.block,
                        place,
                        touched: image.touched,
                    },
                )
            })
            .collect();
        let mut log = self.log.lock();
        let lane_log = log.lane(id.lane)?;
        lane_log.committing = None;
        lane_log.durable.push_back(Durable {
            id,
            stamp: snapshot.stamp,
            floor: snapshot.floor,
            edges: snapshot.edges,
            images,
            freed: rest.freed,
            after: rest.after,
            at,
            blocks: encoded.blocks(),
            homes,
        });
        Ok(())
    }
}
