//! The space of a lane of records: a ring whose space is free again when its records are
//! superseded, so it has no tail. Units are the log's own: blocks of a log, bytes of a region.

use std::collections::VecDeque;
use std::ops::Range;

use stetfs_ondisk::num::to_usize;
use stetfs_sync::plain::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::{FoundRecords, RecordPlace};
use crate::ids::Stamp;

/// A lane of records.
pub(crate) struct RecordLane {
    room: Range<u64>,
    state: Mutex<State>,
    /// The stamp of the newest record up to which all records are durable; 0 if there is none.
    durable: AtomicU64,
}

struct State {
    /// The position of the next record.
    head: u64,
    /// Sequence of the next record.
    seq: u64,
    /// Records whose space is taken, oldest first, with consecutive sequence numbers.
    live: VecDeque<Live>,
    /// The space that they take.
    used: u64,
    /// All records up to this sequence are durable.
    settled: u64,
    /// Stamp of the last record.
    last: Stamp,
}

struct Live {
    stamp: Stamp,
    len: u64,
    /// The record is durable: its space is no longer written to.
    done: bool,
}

impl State {
    /// Frees the space of records up to `horizon`, which are superseded.
    fn reclaim(&mut self, horizon: Stamp, reuse_all: bool) {
        let is_over = |l: &&Live| l.done && (l.stamp <= horizon || reuse_all);
        while let Some(old) = self.live.front().filter(is_over) {
            self.used -= old.len;
            self.live.pop_front();
        }
    }
}

impl RecordLane {
    /// An empty lane in this room.
    pub(crate) fn new(room: Range<u64>) -> RecordLane {
        let state = State {
            head: room.start,
            seq: 1,
            live: VecDeque::new(),
            used: 0,
            settled: 0,
            last: 0,
        };
        RecordLane {
            room,
            state: Mutex::new(state),
            durable: AtomicU64::new(0),
        }
    }

    /// The room of the ring.
    pub(crate) fn room(&self) -> Range<u64> {
        self.room.clone()
    }

    fn capacity(&self) -> u64 {
        self.room.end - self.room.start
    }

    /// The position `len` behind `at`.
    pub(crate) fn advance(&self, at: u64, len: u64) -> u64 {
        self.room.start + (at - self.room.start + len) % self.capacity().max(1)
    }

    /// Takes space for a record of `len` in lane number `lane`; none if there is too little.
    /// `stamp` draws its place in the order, and `durable` gives what it states about other lanes.
    /// `reuse_all` is a canary: all space is used again.
    pub(crate) fn reserve(
        &self,
        lane: usize,
        len: u64,
        horizon: Stamp,
        reuse_all: bool,
        stamp: &dyn Fn() -> Stamp,
        durable: impl FnOnce() -> Vec<(u16, u64)>,
    ) -> Option<RecordPlace> {
        let mut s = self.state.lock();
        s.reclaim(horizon, reuse_all);
        if s.used + len > self.capacity() {
            return None;
        }
        let stamp = stamp();
        let place = RecordPlace {
            lane,
            at: s.head,
            seq: s.seq,
            stamp,
            before: s.last,
            settled: s.settled,
            durable: durable(),
            in_use: None,
        };
        s.head = self.advance(s.head, len);
        s.seq += 1;
        s.used += len;
        s.last = stamp;
        s.live.push_back(Live {
            stamp,
            len,
            done: false,
        });
        Some(place)
    }

    /// Whether more than half of the lane is in use.
    pub(crate) fn is_half_full(&self, horizon: Stamp, reuse_all: bool) -> bool {
        let mut s = self.state.lock();
        s.reclaim(horizon, reuse_all);
        2 * s.used > self.capacity()
    }

    /// Notes that the record with this sequence is durable.
    pub(crate) fn settle(&self, seq: u64) {
        let mut s = self.state.lock();
        let first = s.seq - s.live.len() as u64;
        if let Some(live) = s.live.get_mut(to_usize(seq.saturating_sub(first))) {
            live.done = true;
        }
        let from = to_usize((s.settled + 1).saturating_sub(first));
        let done = s.live.iter().skip(from).take_while(|l| l.done).count() as u64;
        s.settled = s.settled.max(first + from as u64 + done - 1);
        let newest = s.settled.checked_sub(first);
        if let Some(newest) = newest.and_then(|i| s.live.get(to_usize(i))) {
            self.durable.store(newest.stamp, Ordering::Release);
        }
    }

    /// The stamp of the newest record up to which all records are durable; none if a transaction
    /// holds it.
    pub(crate) fn durable(&self, horizon: Stamp) -> Option<Stamp> {
        let stamp = self.durable.load(Ordering::Acquire);
        (stamp > horizon).then_some(stamp)
    }
}

/// The statements of a found record about its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLane {
    pub(crate) seq: u64,
    /// The stamp of the record before it.
    pub(crate) before: Stamp,
    /// The sequence up to which all records of the lane were durable.
    pub(crate) settled: u64,
}

impl FoundRecords {
    /// Notes what a record states to be durable in other lanes.
    pub(crate) fn note_durable(&mut self, durable: impl IntoIterator<Item = (u16, u64)>) {
        for (lane, number) in durable {
            let highest = self.durable.entry(lane).or_default();
            *highest = (*highest).max(number);
        }
    }

    /// Checks a lane for a record that was durable and is missing. `records` are its records above
    /// `horizon`, by sequence.
    pub(crate) fn check_lane(&mut self, lane: u16, horizon: Stamp, records: &[InLane]) {
        let settled = records.iter().map(|r| r.settled).max().unwrap_or(0);
        let mut before = None;
        for InLane {
            seq, before: since, ..
        } in records
        {
            let follows = before == Some(seq - 1);
            if !follows && *since > horizon && seq - 1 <= settled {
                self.lost = Some(format!(
                    "record {} of lane {lane} was synced (record {seq} follows it), but it is \
                     damaged or missing",
                    seq - 1
                ));
            }
            before = Some(*seq);
        }
    }

    /// Sorts the records of all lanes by stamp. Lanes of records count from number `first` on: a
    /// record stated there to be durable must be among them. Statements about transactions stay in
    /// `durable`, for the caller to check.
    pub(crate) fn check_between(&mut self, first: u16, horizon: Stamp) {
        self.records.sort_unstable_by_key(|r| r.stamp);
        for (lane, stamp) in self.durable.split_off(&first) {
            let is_there = |r: &super::LoggedRecord| (r.id.lane.0, r.stamp) == (lane, stamp);
            if stamp > horizon && !self.records.iter().any(is_there) {
                self.lost.get_or_insert(format!(
                    "the record with stamp {stamp} in lane {lane} was synced (a later one says \
                     so), but it is damaged or missing"
                ));
            }
        }
    }
}
