//! What a crash could have left, made from a [`Log`].
//!
//! 1. A flush that succeeded makes durable what was done before it was submitted; a write with FUA
//!    is durable when it is done.
//! 2. Of everything else submitted before the crash, each 512-byte sector may have reached the
//!    device or not. What failed stays uncertain for ever.
//! 3. What reached the device did so in the order of submission: of two writes to one sector that
//!    both arrived, the later stands. So a durable write hides all earlier ones to its sectors.
//! 4. A discard that arrived left zeros.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::record::{Event, Log};
use crate::{BlockDevice, MemDevice, SECTOR};

/// One sector of a request of which it is uncertain whether it reached the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PendingSector {
    /// The request's number.
    pub id: u64,
    /// The request's place in the log.
    pub event: usize,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes, at most 512: a request that is not aligned has shorter ones at its ends.
    pub len: u32,
}

/// What a request does to the device.
#[derive(Debug, Clone)]
enum Change {
    Data(Arc<[u8]>),
    Zeros,
}

/// A request of the log that is not yet part of what stands.
#[derive(Debug, Clone)]
struct Entry {
    id: u64,
    event: usize,
    range: Range<u64>,
    change: Change,
    fua: bool,
    /// Where in the log it was done, with success.
    done: Option<usize>,
    durable: bool,
}

impl Entry {
    fn sectors(&self) -> impl Iterator<Item = PendingSector> + '_ {
        let unit = u64::from(SECTOR);
        let mut at = self.range.start;
        std::iter::from_fn(move || {
            if at >= self.range.end {
                return None;
            }
            let end = ((at / unit + 1) * unit).min(self.range.end);
            let sector = PendingSector {
                id: self.id,
                event: self.event,
                offset: at,
                len: (end - at) as u32,
            };
            at = end;
            Some(sector)
        })
    }

    /// Applies `part` of the request to `dev`.
    fn apply(&self, dev: &MemDevice, part: Range<u64>) {
        match &self.change {
            Change::Zeros => dev.erase(part),
            Change::Data(data) => {
                let (from, to) = (part.start - self.range.start, part.end - self.range.start);
                if let Some(bytes) = data.get(from as usize..to as usize) {
                    dev.store(part.start, bytes);
                }
            }
        }
    }
}

/// Walks through a log, and makes the devices that a crash at the point reached could leave.
#[derive(Debug)]
pub struct Replay<'l> {
    log: &'l Log,
    at: usize,
    /// The base and all that stands before the first entry of `open`.
    settled: MemDevice,
    /// In order of submission; the first is not durable.
    open: VecDeque<Entry>,
    /// Flushes under way, and where they were submitted.
    flushes: HashMap<u64, usize>,
}

impl<'l> Replay<'l> {
    /// A walk that stands before the first event of `log`, with the device as it was then.
    pub fn new(base: &MemDevice, log: &'l Log) -> Self {
        Replay {
            log,
            at: 0,
            settled: base.fork(),
            open: VecDeque::new(),
            flushes: HashMap::new(),
        }
    }

    /// Number of events passed: the crash comes after these.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Moves the crash behind the first `n` events (or the last there is). Does not go back.
    pub fn advance_to(&mut self, n: usize) {
        while self.at < n.min(self.log.len()) {
            if let Some(event) = self.log.events.get(self.at) {
                self.pass(event);
            }
            self.at += 1;
        }
    }

    fn pass(&mut self, event: &Event) {
        match event {
            Event::Write {
                id,
                offset,
                data,
                fua,
            } => {
                let range = *offset..offset.saturating_add(data.len() as u64);
                self.open(*id, range, Change::Data(data.clone()), *fua);
            }
            Event::Discard { id, range } => self.open(*id, range.clone(), Change::Zeros, false),
            Event::Flush { id } => {
                self.flushes.insert(*id, self.at);
            }
            Event::Done { id, ok } => {
                if let Some(submitted) = self.flushes.remove(id) {
                    if *ok {
                        self.flushed(submitted);
                    }
                } else if *ok && let Some(entry) = self.open.iter_mut().rev().find(|e| e.id == *id)
                {
                    entry.done = Some(self.at);
                    entry.durable |= entry.fua;
                }
                self.settle();
            }
            Event::Mark { .. } => {}
        }
    }

    fn open(&mut self, id: u64, range: Range<u64>, change: Change, fua: bool) {
        // A request beyond the end changes nothing.
        if range.start < range.end && range.end <= self.settled.size() {
            let event = self.at;
            self.open.push_back(Entry {
                id,
                event,
                range,
                change,
                fua,
                done: None,
                durable: false,
            });
        }
    }

    /// A flush submitted at this place succeeded (1).
    fn flushed(&mut self, submitted: usize) {
        for entry in &mut self.open {
            entry.durable |= entry.done.is_some_and(|done| done < submitted);
        }
    }

    fn settle(&mut self) {
        while self.open.front().is_some_and(|e| e.durable) {
            if let Some(entry) = self.open.pop_front() {
                entry.apply(&self.settled, entry.range.clone());
            }
        }
    }

    /// The sectors that may or may not have reached the device (2), in order of submission.
    /// Sectors that a later durable write hides (3) are left out.
    pub fn pending(&self) -> Vec<PendingSector> {
        let unit = u64::from(SECTOR);
        // Walk backwards, with the sectors that are wholly covered by a durable request.
        let mut hidden = HashSet::new();
        let mut pending = Vec::new();
        for entry in self.open.iter().rev() {
            let mut mine: Vec<_> = entry.sectors().collect();
            if entry.durable {
                let whole = mine.iter().filter(|s| s.len == SECTOR);
                hidden.extend(whole.map(|s| s.offset / unit));
            } else {
                mine.retain(|s| !hidden.contains(&(s.offset / unit)));
                pending.extend(mine.into_iter().rev());
            }
        }
        pending.reverse();
        pending
    }

    /// The device if of the pending sectors exactly those arrived for which `arrived` says so. It
    /// is asked in order of submission, also about hidden sectors, whose answer changes nothing.
    pub fn crash(&self, mut arrived: impl FnMut(&PendingSector) -> bool) -> MemDevice {
        let dev = self.settled.fork();
        for entry in &self.open {
            if entry.durable {
                entry.apply(&dev, entry.range.clone());
                continue;
            }
            for sector in entry.sectors() {
                if arrived(&sector) {
                    entry.apply(&dev, sector.offset..sector.offset + u64::from(sector.len));
                }
            }
        }
        dev
    }

    /// The device with all that was submitted: what a program that is killed leaves.
    pub fn everything(&self) -> MemDevice {
        self.crash(|_| true)
    }

    /// The device with nothing but what certainly stands.
    pub fn only_durable(&self) -> MemDevice {
        self.crash(|_| false)
    }
}
