//! What a crash could have left, made from a [`Log`].
//!
//! 1. A flush that succeeded makes durable what was done before it was submitted; a write with FUA
//!    is durable when it is done.
//! 2. Of everything else submitted before the crash, each 512-byte sector may have reached the
//!    device or not. What failed stays uncertain for ever, and so does all that was not durable
//!    when a flush failed: no later flush covers it (rule 5 of the crate's head).
//! 3. What reached the device did so in the order of submission: of two writes to one sector that
//!    both arrived, the later stands. So a durable write hides all earlier ones to its sectors.
//! 4. A discard that arrived left zeros.
//! 5. What was shared is what the sources held when the batch was submitted. Where the device
//!    promises atomicity the batch arrived or not; else each of its units did or not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::record::{Event, Log};
use crate::{BlockDevice, MemDevice, SECTOR, SharePair};

/// One sector of a request of which it is uncertain whether it reached the device. Of what was
/// shared the first sector of a unit stands for it, and where batches are atomic the first of all
/// for the batch.
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
    Shared {
        /// Where each unit is, and what it becomes.
        units: Vec<(u64, Arc<[u8]>)>,
        atomic: bool,
    },
}

/// The sector that begins at this byte.
fn sector_at(entry: &Entry, offset: u64) -> PendingSector {
    PendingSector {
        id: entry.id,
        event: entry.event,
        offset,
        len: SECTOR,
    }
}

/// The numbers of the sectors that lie wholly in a range.
fn whole_sectors(range: Range<u64>) -> Range<u64> {
    let unit = u64::from(SECTOR);
    range.start.div_ceil(unit)..range.end / unit
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
    /// A flush has failed since: none covers it any more.
    forsaken: bool,
}

impl Entry {
    /// What may have arrived or not, apart from the others.
    fn sectors(&self) -> Vec<PendingSector> {
        if let Change::Shared { units, atomic } = &self.change {
            let first = units.iter().take(if *atomic { 1 } else { usize::MAX });
            return first.map(|(at, _)| sector_at(self, *at)).collect();
        }
        let unit = u64::from(SECTOR);
        let mut at = self.range.start;
        let mut sectors = Vec::new();
        while at < self.range.end {
            let end = ((at / unit + 1) * unit).min(self.range.end);
            sectors.push(PendingSector {
                len: (end - at) as u32,
                ..sector_at(self, at)
            });
            at = end;
        }
        sectors
    }

    /// Whether all that changes with one of its sectors lies in hidden ones.
    fn is_hidden(&self, sector: &PendingSector, hidden: &HashSet<u64>) -> bool {
        let unit = |(at, bytes): &(u64, Arc<[u8]>)| {
            let end = (at + bytes.len() as u64).div_ceil(u64::from(SECTOR));
            (at / u64::from(SECTOR)..end).all(|n| hidden.contains(&n))
        };
        match &self.change {
            Change::Shared { units, atomic } => units
                .iter()
                .filter(|(at, _)| *atomic || *at == sector.offset)
                .all(unit),
            Change::Data(_) | Change::Zeros => {
                hidden.contains(&(sector.offset / u64::from(SECTOR)))
            }
        }
    }

    /// The whole sectors that change.
    fn changed(&self) -> Vec<Range<u64>> {
        match &self.change {
            Change::Shared { units, .. } => {
                let whole =
                    |(at, bytes): &(u64, Arc<[u8]>)| whole_sectors(*at..*at + bytes.len() as u64);
                units.iter().map(whole).collect()
            }
            Change::Data(_) | Change::Zeros => vec![whole_sectors(self.range.clone())],
        }
    }

    /// Applies all of the request to `dev`.
    fn apply_all(&self, dev: &MemDevice) {
        match &self.change {
            Change::Shared { units, .. } => {
                units.iter().for_each(|(at, bytes)| dev.store(*at, bytes))
            }
            Change::Data(_) | Change::Zeros => self.apply(dev, self.range.clone()),
        }
    }

    /// Applies what changes with the unit of a share that begins with a sector, to `dev`.
    fn apply_unit(&self, dev: &MemDevice, sector: &PendingSector) {
        match &self.change {
            Change::Shared { atomic: true, .. } => self.apply_all(dev),
            Change::Shared { units, .. } => {
                let one = units.iter().filter(|(at, _)| *at == sector.offset);
                one.for_each(|(at, bytes)| dev.store(*at, bytes));
            }
            Change::Data(_) | Change::Zeros => {}
        }
    }

    /// Applies `part` of a write or discard to `dev`.
    fn apply(&self, dev: &MemDevice, part: Range<u64>) {
        match &self.change {
            Change::Zeros => dev.erase(part),
            Change::Data(data) => {
                let (from, to) = (part.start - self.range.start, part.end - self.range.start);
                if let Some(bytes) = data.get(from as usize..to as usize) {
                    dev.store(part.start, bytes);
                }
            }
            Change::Shared { .. } => {}
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
            Event::Share {
                id,
                pairs,
                unit,
                atomic,
            } => self.open_share(*id, pairs, *unit, *atomic),
            Event::Flush { id } => {
                self.flushes.insert(*id, self.at);
            }
            Event::Done { id, ok } => {
                if let Some(submitted) = self.flushes.remove(id) {
                    match *ok {
                        true => self.flushed(submitted),
                        false => self.open.iter_mut().for_each(|e| e.forsaken = true),
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
                forsaken: false,
            });
        }
    }

    fn open_share(&mut self, id: u64, pairs: &[SharePair], unit: u32, atomic: bool) {
        let seen = self.everything();
        let size = seen.size();
        let inside = |at: u64| {
            at.checked_add(u64::from(unit))
                .is_some_and(|end| end <= size)
        };
        let mut units = Vec::new();
        for (dst, src) in pairs.iter().flat_map(|pair| pair.units(unit)) {
            // A request beyond the end changes nothing.
            let mut bytes = vec![0; unit as usize];
            if inside(dst) && inside(src) && seen.read(src, &mut bytes).is_ok() {
                units.push((dst, bytes.into()));
            }
        }
        let range = match (units.first(), units.last()) {
            (Some((first, _)), Some((last, _))) => *first..*last + u64::from(unit),
            _ => return,
        };
        let event = self.at;
        self.open.push_back(Entry {
            id,
            event,
            range,
            change: Change::Shared { units, atomic },
            fua: false,
            done: None,
            durable: false,
            forsaken: false,
        });
    }

    /// A flush submitted at this place succeeded (1).
    fn flushed(&mut self, submitted: usize) {
        for entry in &mut self.open {
            let done = entry.done.is_some_and(|done| done < submitted);
            entry.durable |= done && !entry.forsaken;
        }
    }

    fn settle(&mut self) {
        while self.open.front().is_some_and(|e| e.durable) {
            if let Some(entry) = self.open.pop_front() {
                entry.apply_all(&self.settled);
            }
        }
    }

    /// The sectors that may or may not have reached the device (2), in order of submission.
    /// Sectors that a later durable write hides (3) are left out.
    pub fn pending(&self) -> Vec<PendingSector> {
        // Walk backwards, with the sectors that are wholly covered by a durable request.
        let mut hidden = HashSet::new();
        let mut pending = Vec::new();
        for entry in self.open.iter().rev() {
            if entry.durable {
                hidden.extend(entry.changed().into_iter().flatten());
            } else {
                let mut mine = entry.sectors();
                mine.retain(|s| !entry.is_hidden(s, &hidden));
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
                entry.apply_all(&dev);
                continue;
            }
            let of_range = matches!(entry.change, Change::Data(_) | Change::Zeros);
            // Neighbours arrive in one piece: a copy of a page costs more than its sectors.
            let mut piece = entry.range.start..entry.range.start;
            for sector in entry.sectors() {
                match (arrived(&sector), of_range) {
                    (true, true) if piece.end == sector.offset => {
                        piece.end += u64::from(sector.len);
                    }
                    (true, true) => {
                        let next = sector.offset..sector.offset + u64::from(sector.len);
                        entry.apply(&dev, std::mem::replace(&mut piece, next));
                    }
                    (true, false) => entry.apply_unit(&dev, &sector),
                    (false, _) => {}
                }
            }
            entry.apply(&dev, piece);
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
