//! Crash states of a device, built from a [`Log`].
//!
//! 1. A successful flush makes everything durable that was done before the flush was submitted; a
//!    write with FUA is durable when it is done.
//! 2. Of everything else submitted before the crash, each 512-byte sector may have reached the
//!    device or not. Failed requests stay uncertain for ever, and so does everything that was not
//!    durable when a flush failed: no later flush covers it (rule 5 of the crate).
//! 3. Sectors reach the device in the order of submission: of two writes to one sector that both
//!    arrived, the later stands. So a durable write hides all earlier ones to its sectors.
//! 4. A discard that arrived leaves zeros.
//! 5. A shared unit has the content of its source at the submission of the batch. On a device with
//!    atomic batches the whole batch arrived or not; otherwise each unit did or not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::record::{Event, Log};
use crate::{BlockDevice, MemDevice, SECTOR, SharePair};

/// One sector of a request that may or may not have reached the device. The first sector of a
/// shared unit stands for the unit, and the first of an atomic batch for the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PendingSector {
    /// The request's number.
    pub id: u64,
    /// The request's index in the log.
    pub event: usize,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes, at most 512: the ends of an unaligned request are shorter.
    pub len: u32,
}

/// The effect of a request on the device.
#[derive(Debug, Clone)]
enum Change {
    Data(Arc<[u8]>),
    Zeros,
    Shared {
        /// The offset and new content of each unit.
        units: Vec<(u64, Arc<[u8]>)>,
        atomic: bool,
    },
}

/// The sector that begins at byte `offset`.
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

/// A request of the log that is not certainly durable, or comes behind one that is not.
#[derive(Debug, Clone)]
struct Entry {
    id: u64,
    event: usize,
    range: Range<u64>,
    change: Change,
    fua: bool,
    /// The index in the log at which it was done, if it succeeded.
    done: Option<usize>,
    durable: bool,
    /// Whether a flush has failed since: no later flush covers it.
    forsaken: bool,
}

impl Entry {
    /// The sectors, units or batch that arrive independently of each other.
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

    /// Whether everything that arrives with `sector` lies in hidden sectors.
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

    /// The ranges of whole sectors that change.
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

    /// Applies the whole request to `dev`.
    fn apply_all(&self, dev: &MemDevice) {
        match &self.change {
            Change::Shared { units, .. } => {
                units.iter().for_each(|(at, bytes)| dev.store(*at, bytes))
            }
            Change::Data(_) | Change::Zeros => self.apply(dev, self.range.clone()),
        }
    }

    /// Applies the shared unit that begins with `sector` to `dev`, or all units if they are atomic.
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

/// Walks through a log, and builds the devices that a crash at the current position could leave.
#[derive(Debug)]
pub struct Replay<'l> {
    log: &'l Log,
    at: usize,
    /// The base with all requests before the first entry of `open`.
    settled: MemDevice,
    /// In order of submission; the first is not durable.
    open: VecDeque<Entry>,
    /// Flushes in flight, and the index of their submission.
    flushes: HashMap<u64, usize>,
}

impl<'l> Replay<'l> {
    /// A replay positioned before the first event of `log`; `base` is the device's content then.
    pub fn new(base: &MemDevice, log: &'l Log) -> Self {
        Replay {
            log,
            at: 0,
            settled: base.fork(),
            open: VecDeque::new(),
            flushes: HashMap::new(),
        }
    }

    /// Number of events passed: the crash comes behind these.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Moves the crash behind the first `n` events, at most to the end. Does not go back.
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
        // A request beyond the end has no effect.
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
            // A request beyond the end has no effect.
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

    /// Applies a successful flush that was submitted at index `submitted` (1).
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

    /// The sectors that may or may not have reached the device (2), in order of submission, without
    /// those that a later durable write hides (3).
    pub fn pending(&self) -> Vec<PendingSector> {
        // Walk backwards, with the set of sectors that a durable request covers wholly.
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

    /// The device after a crash in which, of the pending sectors, those arrived for which `arrived`
    /// returns true. It is called in order of submission, also for hidden sectors, where its answer
    /// has no effect.
    pub fn crash(&self, mut arrived: impl FnMut(&PendingSector) -> bool) -> MemDevice {
        let dev = self.settled.fork();
        for entry in &self.open {
            if entry.durable {
                entry.apply_all(&dev);
                continue;
            }
            let of_range = matches!(entry.change, Change::Data(_) | Change::Zeros);
            // Adjacent sectors are applied in one piece: copying a page costs more than its
            // sectors.
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

    /// The device with all submitted requests: the state after a kill of the process.
    pub fn everything(&self) -> MemDevice {
        self.crash(|_| true)
    }

    /// The device with only the durable requests.
    pub fn only_durable(&self) -> MemDevice {
        self.crash(|_| false)
    }
}
