//! Crash states of a region, built from a [`RegionLog`].
//!
//! 1. Lines that a thread flushed before its own fence are durable once the fence has returned,
//!    with their content at the flush.
//! 2. Any line may be newer: it then also holds the first n words stored to it since, in the order
//!    of the log.
//! 3. Lines are independent of each other.

use std::collections::{BTreeMap, HashMap};

use crate::record::{RegionLog, What};
use crate::words::pieces;
use crate::{LINE, MemRegion, Region, WORD};

/// A line with stores that may or may not have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PendingLine {
    /// First byte of the line.
    pub offset: u64,
    /// The number of stores (of a word or of a part of one) that may have arrived: a crash keeps a
    /// prefix of them.
    pub stores: usize,
}

/// A store to a word, or to a part of it.
#[derive(Debug, Clone)]
struct Store {
    offset: u64,
    /// The event's index in the log, and the first byte in its data.
    event: usize,
    from: usize,
    len: usize,
}

/// The stores to a line that are not certainly durable.
#[derive(Debug, Default)]
struct Line {
    /// The number of durable stores, applied to `settled`, since the replay began.
    standing: usize,
    open: Vec<Store>,
}

/// Walks through a log, and builds the regions that a crash at the current position could leave.
#[derive(Debug)]
pub struct RegionReplay<'l> {
    log: &'l RegionLog,
    at: usize,
    /// The base with all durable stores.
    settled: MemRegion,
    /// By line number, for all lines that were stored to.
    lines: BTreeMap<u64, Line>,
    /// By thread, the lines flushed and not fenced: the line's number, and its count of stores at
    /// the flush.
    flushed: HashMap<u32, Vec<(u64, usize)>>,
}

impl<'l> RegionReplay<'l> {
    /// A replay positioned before the first event of `log`; `base` is the region's content then.
    pub fn new(base: &MemRegion, log: &'l RegionLog) -> Self {
        RegionReplay {
            log,
            at: 0,
            settled: base.fork(),
            lines: BTreeMap::new(),
            flushed: HashMap::new(),
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

    /// Applies a thread's fence (1).
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

    /// The lines with stores that may have arrived (2), by offset.
    pub fn pending(&self) -> Vec<PendingLine> {
        let open = self.lines.iter().filter(|(_, line)| !line.open.is_empty());
        open.map(|(number, line)| PendingLine {
            offset: number * LINE,
            stores: line.open.len(),
        })
        .collect()
    }

    /// The region after a crash that kept, of each pending line, the first `arrived` stores (at
    /// most all of them). `arrived` is called in the order of offsets.
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

    /// The region with all stores: the state after a kill of the process.
    pub fn everything(&self) -> MemRegion {
        self.crash(|line| line.stores)
    }

    /// The region with only the durable stores.
    pub fn only_durable(&self) -> MemRegion {
        self.crash(|_| 0)
    }

    /// State number `n` of those that a crash here could leave; the same seed gives the same
    /// states. 0 has only the durable stores, 1 has all. Then, for each pending line, one state has
    /// only its stores, and one has all but its stores. All further states are random mixtures.
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
        // All stores of a line, none, or a part of them, each often enough.
        self.crash(|line| match rng.u8(..4) {
            0 => 0,
            1 => line.stores,
            _ => rng.usize(..=line.stores),
        })
    }

    /// The number of [`RegionReplay::state`]s before the random mixtures.
    pub fn special_states(&self) -> u64 {
        2 + 2 * self.pending().len() as u64
    }
}

/// Applies the bytes of `store`, a part of a logged event, to `region`.
fn apply(log: &RegionLog, store: &Store, region: &MemRegion) {
    let Some(What::Store { data, .. }) = log.events.get(store.event).map(|event| &event.what)
    else {
        return;
    };
    if let Some(bytes) = data.get(store.from..store.from + store.len) {
        // A store beyond the end fails and changes nothing.
        let _ = region.store(store.offset, bytes);
    }
}
