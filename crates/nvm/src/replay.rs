//! What a crash could have left of a region, made from a [`RegionLog`].
//!
//! 1. What a thread had flushed before its own fence stands once the fence has returned, as it was
//!    at the flush.
//! 2. Of everything else any line may be newer: it then holds the first so many of the words that
//!    were stored to it since, in the order of the record.
//! 3. Lines know nothing of each other.

use std::collections::{BTreeMap, HashMap};

use crate::record::{RegionLog, What};
use crate::words::pieces;
use crate::{LINE, MemRegion, Region, WORD};

/// A line of which it is uncertain how much of what was stored to it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PendingLine {
    /// First byte of the line.
    pub offset: u64,
    /// Stores of a word, or of a part of one, that may have arrived: none, or so many of the first
    /// of them.
    pub stores: usize,
}

/// A store to a word, or to a part of it.
#[derive(Debug, Clone)]
struct Store {
    offset: u64,
    /// Where in the log, and in its data.
    event: usize,
    from: usize,
    len: usize,
}

/// What was stored to a line and need not stand.
#[derive(Debug, Default)]
struct Line {
    /// Stores that stand and are in `settled`, since the replay began.
    standing: usize,
    open: Vec<Store>,
}

/// Walks through a log, and makes the regions that a crash at the point reached could leave.
#[derive(Debug)]
pub struct RegionReplay<'l> {
    log: &'l RegionLog,
    at: usize,
    /// The base and all that stands.
    settled: MemRegion,
    /// By number; those that all stands of may be missing nothing.
    lines: BTreeMap<u64, Line>,
    /// By thread: what it flushed and did not fence, a line's number and how many stores to it
    /// there had been.
    flushed: HashMap<u32, Vec<(u64, usize)>>,
}

impl<'l> RegionReplay<'l> {
    /// A walk that stands before the first event of `log`, with the region as it was then.
    pub fn new(base: &MemRegion, log: &'l RegionLog) -> Self {
        RegionReplay {
            log,
            at: 0,
            settled: base.fork(),
            lines: BTreeMap::new(),
            flushed: HashMap::new(),
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
                match &event.what {
                    What::Store { offset, data } => self.store(*offset, data.len()),
                    What::Flush { lines } => {
                        let counts = self
                            .lines
                            .range(lines.clone())
                            .map(|(number, line)| (*number, line.standing + line.open.len()));
                        let mine = self.flushed.entry(event.thread).or_default();
                        mine.extend(counts);
                    }
                    What::Fence => self.fence(event.thread),
                    What::Mark { .. } => {}
                }
            }
            self.at += 1;
        }
    }

    fn store(&mut self, offset: u64, len: usize) {
        let mut from = 0;
        for piece in pieces(offset, len as u64) {
            let offset = piece.word as u64 * WORD + piece.bytes.start as u64;
            let store = Store {
                offset,
                event: self.at,
                from,
                len: piece.bytes.len(),
            };
            from += store.len;
            self.lines
                .entry(offset / LINE)
                .or_default()
                .open
                .push(store);
        }
    }

    /// A thread's fence (1).
    fn fence(&mut self, thread: u32) {
        for (number, count) in self.flushed.remove(&thread).unwrap_or_default() {
            let Some(line) = self.lines.get_mut(&number) else {
                continue;
            };
            let stand = count.saturating_sub(line.standing);
            line.standing += stand;
            for store in line.open.drain(..stand) {
                apply(self.log, &store, &self.settled);
            }
        }
    }

    /// The lines that may or may not be newer than what stands (2), by offset.
    pub fn pending(&self) -> Vec<PendingLine> {
        let open = self.lines.iter().filter(|(_, line)| !line.open.is_empty());
        open.map(|(number, line)| PendingLine {
            offset: number * LINE,
            stores: line.open.len(),
        })
        .collect()
    }

    /// The region if of each pending line so many of its stores arrived, in their order, as
    /// `arrived` says (at most all of them). It is asked by offset.
    pub fn crash(&self, mut arrived: impl FnMut(&PendingLine) -> usize) -> MemRegion {
        let region = self.settled.fork();
        for pending in self.pending() {
            let Some(line) = self.lines.get(&(pending.offset / LINE)) else {
                continue;
            };
            for store in line.open.iter().take(arrived(&pending)) {
                apply(self.log, store, &region);
            }
        }
        region
    }

    /// The region with all that was stored: what a program that is killed leaves.
    pub fn everything(&self) -> MemRegion {
        self.crash(|line| line.stores)
    }

    /// The region with nothing but what certainly stands.
    pub fn only_durable(&self) -> MemRegion {
        self.crash(|_| 0)
    }

    /// State `n` of those that a crash here could leave, the same for the same seed. First nothing
    /// arrived (0), then everything (1); then for each pending line it alone arrived, and it
    /// alone did not; then any mixture.
    pub fn state(&self, seed: u64, n: u64) -> MemRegion {
        let special = match n {
            0 => return self.only_durable(),
            1 => return self.everything(),
            _ => n - 2,
        };
        if let Some(one) = self.pending().get((special / 2) as usize) {
            let arrives = special.is_multiple_of(2);
            return self.crash(|line| match (line == one) == arrives {
                true => line.stores,
                false => 0,
            });
        }
        let mut rng = fastrand::Rng::with_seed(seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // All of a line, nothing, or a part of it: each often enough.
        self.crash(|line| match rng.u8(..4) {
            0 => 0,
            1 => line.stores,
            _ => rng.usize(..=line.stores),
        })
    }

    /// How many [`RegionReplay::state`]s come before the mixtures.
    pub fn special_states(&self) -> u64 {
        2 + 2 * self.pending().len() as u64
    }
}

/// Stores again what an event of the log stored, or a part of it.
fn apply(log: &RegionLog, store: &Store, region: &MemRegion) {
    let Some(What::Store { data, .. }) = log.events.get(store.event).map(|event| &event.what)
    else {
        return;
    };
    if let Some(bytes) = data.get(store.from..store.from + store.len) {
        // A store beyond the end changes nothing.
        let _ = region.store(store.offset, bytes);
    }
}
