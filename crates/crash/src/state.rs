//! The name of one crash of a recording: the moment, and the unflushed writes that arrived.
//!
//! As text, `EVENT:ARRIVAL`: the number of events before the crash, and `none`, `all`, `=MASK`
//! (whole writes, hexadecimal, bit 0 the first), `~SEED` (a draw), or `-1,4-7` (all sectors but
//! these, counted from the first that is uncertain). With a region of persistent memory, `@EVENT~N`
//! follows: the number of its events before the crash, and a number that selects the lines that
//! arrived (`RegionReplay::state`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use stetfs::low::MemDevice;
use stetfs_block::{Event, Log, PendingSector, Replay};
use stetfs_nvm::PendingLine;

/// The unflushed writes that arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// None of them.
    None,
    /// All of them.
    All,
    /// The whole writes of this mask; bit 0 is the first.
    Whole(u64),
    /// A random choice with this seed.
    Drawn(u64),
    /// All sectors but these (numbers among the uncertain sectors, ascending).
    Without(Vec<u32>),
}

/// One crash of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Number of events before the crash.
    pub event: usize,
    /// The unflushed writes that arrived.
    pub arrival: Arrival,
    /// The crash of the region beside the device. Without it all stores up to then have arrived.
    pub region: Option<InRegion>,
}

/// A crash of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InRegion {
    /// Number of events of the region before the crash.
    pub event: usize,
    /// Number of the region's state at that event (`RegionReplay::state` with seed 0).
    pub state: u64,
}

/// The uncertain sectors at one event of a recording, grouped by the writes that they belong to.
#[derive(Debug)]
pub struct Uncertain {
    /// The sectors in order of submission.
    pub sectors: Vec<PendingSector>,
    /// Request of each sector, as a number from 0 on.
    of: Vec<usize>,
    /// Number of requests.
    pub requests: usize,
    /// The lines of the region that are not fenced.
    pub lines: Vec<PendingLine>,
}

impl Uncertain {
    /// The uncertain sectors at the event that `replay` has reached.
    pub fn at(replay: &Replay<'_>) -> Uncertain {
        let sectors = replay.pending();
        // The sectors of a request are adjacent.
        let of: Vec<usize> = (sectors.chunk_by(|a, b| a.id == b.id).enumerate())
            .flat_map(|(number, of_request)| of_request.iter().map(move |_| number))
            .collect();
        let requests = of.last().map_or(0, |last| last + 1);
        Uncertain {
            sectors,
            of,
            requests,
            lines: Vec::new(),
        }
    }

    /// The sectors of each batch that was shared and not flushed, as indices into `sectors`.
    pub fn shared(&self, log: &Log) -> Vec<Vec<usize>> {
        let mut batches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, sector) in self.sectors.iter().enumerate() {
            if matches!(log.events.get(sector.event), Some(Event::Share { .. })) {
                batches.entry(sector.event).or_default().push(i);
            }
        }
        batches.into_values().collect()
    }

    /// Whether a write arrives only in part.
    pub fn tears(&self, event: usize, arrival: &Arrival) -> bool {
        let arrived = self.arrived(event, arrival);
        let mut first = HashMap::new();
        let mut all = self.of.iter().zip(&arrived);
        all.any(|(request, arrived)| *first.entry(request).or_insert(arrived) != arrived)
    }

    /// For each sector, whether it arrived.
    pub fn arrived(&self, event: usize, arrival: &Arrival) -> Vec<bool> {
        let each = |f: &mut dyn FnMut(usize, usize) -> bool| {
            self.of.iter().enumerate().map(|(i, r)| f(i, *r)).collect()
        };
        match arrival {
            Arrival::None => vec![false; self.sectors.len()],
            Arrival::All => vec![true; self.sectors.len()],
            Arrival::Whole(mask) => each(&mut |_, r| r < 64 && mask >> r & 1 == 1),
            Arrival::Without(lost) => each(&mut |i, _| lost.binary_search(&(i as u32)).is_err()),
            Arrival::Drawn(seed) => draw(&self.of, self.requests, event, *seed),
        }
    }
}

/// Number of kinds of draws; the seed modulo this chooses the kind.
pub const KINDS: u64 = 10;

/// Draws the sectors that arrive; `of` is the request of each sector. The kinds differ so that few
/// draws meet single lost writes, single early ones, reversed order, and torn writes.
fn draw(of: &[usize], requests: usize, event: usize, seed: u64) -> Vec<bool> {
    let mut rng = fastrand::Rng::with_seed(
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (event as u64).rotate_left(32),
    );
    let one = rng.usize(0..requests.max(1));
    let sector = rng.usize(0..of.len().max(1));
    let whole = |rng: &mut fastrand::Rng, of_256: u8| -> Vec<bool> {
        let all: Vec<bool> = (0..requests).map(|_| rng.u8(..) < of_256).collect();
        of.iter().map(|r| all[*r]).collect()
    };
    match seed % KINDS {
        // Whole writes: half of them, most of them, few.
        0 => whole(&mut rng, 128),
        1 => whole(&mut rng, 225),
        2 => whole(&mut rng, 30),
        // All but one; only one; only what came early; only what came late.
        3 => of.iter().map(|r| *r != one).collect(),
        4 => of.iter().map(|r| *r == one).collect(),
        5 => of.iter().map(|r| *r < one).collect(),
        6 => of.iter().map(|r| *r > one).collect(),
        // Single sectors: half, all but one, one write torn.
        7 => of.iter().map(|_| rng.bool()).collect(),
        8 => (0..of.len()).map(|i| i != sector).collect(),
        _ => of.iter().map(|r| *r != one || rng.bool()).collect(),
    }
}

impl StateId {
    /// The device that this crash leaves, for a machine without a region. Moves `replay` to the
    /// crash; it must not be past it.
    pub fn make(&self, replay: &mut Replay<'_>) -> MemDevice {
        replay.advance_to(self.event);
        match self.arrival {
            Arrival::None => replay.only_durable(),
            Arrival::All => replay.everything(),
            _ => self.make_of(replay, &Uncertain::at(replay)),
        }
    }

    /// The device that this crash leaves, if `uncertain` is known already.
    pub fn make_of(&self, replay: &Replay<'_>, uncertain: &Uncertain) -> MemDevice {
        let arrived = uncertain.arrived(self.event, &self.arrival);
        let mut told = uncertain.sectors.iter().zip(arrived).peekable();
        // Both lists are in order of submission. A sector that a later durable write covers is not
        // uncertain, and changes nothing.
        replay.crash(|s| {
            let is_told = |(t, _): &(&PendingSector, bool)| (t.id, t.offset) == (s.id, s.offset);
            told.next_if(is_told).is_none_or(|(_, arrived)| arrived)
        })
    }

    /// Whether the crash keeps only a part of one of these batches ([`Uncertain::shared`]).
    pub fn tears(&self, uncertain: &Uncertain, batches: &[Vec<usize>]) -> bool {
        let arrived = uncertain.arrived(self.event, &self.arrival);
        batches.iter().any(|batch| {
            let kept = batch.iter().filter(|i| arrived[**i]).count();
            kept > 0 && kept < batch.len()
        })
    }

    /// The same crash, named by the lost sectors.
    pub fn without(&self, uncertain: &Uncertain) -> StateId {
        let arrived = uncertain.arrived(self.event, &self.arrival);
        let lost = arrived.iter().enumerate().filter(|(_, a)| !**a);
        StateId {
            event: self.event,
            arrival: Arrival::Without(lost.map(|(i, _)| i as u32).collect()),
            region: self.region,
        }
    }
}

/// The reason to crash at an event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// A write was submitted.
    Write,
    /// A sync was acknowledged.
    Acked,
    /// A flush, or a write with FUA, is about to complete.
    Flush,
    /// A fence of the region is about to return.
    Fence,
}

/// The events of a recording to crash at, from event `from` on.
pub fn points(log: &Log, from: usize) -> Vec<(usize, Why)> {
    let mut flushes = std::collections::HashSet::new();
    let mut points = Vec::new();
    for (i, event) in log.events.iter().enumerate() {
        let point = match event {
            Event::Flush { id } => {
                flushes.insert(*id);
                None
            }
            Event::Write { id, fua, .. } => {
                if *fua {
                    flushes.insert(*id);
                }
                Some((i + 1, Why::Write))
            }
            Event::Discard { .. } | Event::Share { .. } => Some((i + 1, Why::Write)),
            // The crash comes before the flush completes.
            Event::Done { id, .. } if flushes.contains(id) => Some((i, Why::Flush)),
            Event::Done { .. } => None,
            Event::Mark { label, .. } if label == crate::marks::ACKED => Some((i + 1, Why::Acked)),
            Event::Mark { .. } => None,
        };
        points.extend(point.filter(|(at, _)| *at >= from));
    }
    points.push((log.len(), Why::Acked));
    points
}

/// Most unflushed writes at a flush for which every subset is tried.
const SUBSETS: usize = 5;
/// Number of draws at a flush with more of them.
const DRAWS: u64 = 12;

/// The crashes that the first pass tries at an event.
pub fn first_pass(event: usize, why: Why, uncertain: &Uncertain, seed: u64) -> Vec<StateId> {
    // Events far apart draw different kinds.
    let seed = seed.wrapping_mul(1000).wrapping_add(event as u64 * 3);
    let mut arrivals = match (why, uncertain.requests) {
        (_, 0) => vec![Arrival::None],
        (Why::Flush, n) if n <= SUBSETS => {
            let mut all: Vec<_> = (0..1 << n).map(Arrival::Whole).collect();
            all.extend(
                (7..KINDS).map(|kind| Arrival::Drawn(seed.wrapping_mul(KINDS).wrapping_add(kind))),
            );
            all
        }
        (Why::Flush, _) => {
            let mut all = vec![Arrival::None, Arrival::All];
            all.extend((0..DRAWS).map(|i| Arrival::Drawn(seed.wrapping_add(i))));
            all
        }
        (Why::Write | Why::Acked | Why::Fence, _) => {
            vec![Arrival::None, Arrival::All, Arrival::Drawn(seed)]
        }
    };
    if uncertain.sectors.len() <= 1 {
        arrivals.retain(|a| !matches!(a, Arrival::Drawn(_)));
    }
    arrivals
        .into_iter()
        .map(|arrival| StateId {
            event,
            arrival,
            region: None,
        })
        .collect()
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.event, self.arrival)?;
        match self.region {
            Some(InRegion { event, state }) => write!(f, "@{event}~{state}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrival::None => f.write_str("none"),
            Arrival::All => f.write_str("all"),
            Arrival::Whole(mask) => write!(f, "={mask:x}"),
            Arrival::Drawn(seed) => write!(f, "~{seed}"),
            Arrival::Without(lost) => {
                f.write_str("-")?;
                let mut rest = lost.as_slice();
                while let Some(&first) = rest.first() {
                    let run = rest
                        .iter()
                        .zip(first..)
                        .take_while(|(a, b)| **a == *b)
                        .count();
                    let comma = if rest.len() < lost.len() { "," } else { "" };
                    match run {
                        1 => write!(f, "{comma}{first}")?,
                        n => write!(f, "{comma}{first}-{}", first + n as u32 - 1)?,
                    }
                    rest = rest.get(run..).unwrap_or_default();
                }
                Ok(())
            }
        }
    }
}

/// Most lost sectors that are named one by one.
const LOST_MAX: usize = 1 << 20;

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<StateId, String> {
        let bad = || {
            format!(
                "{text:?} is not a crash state: write EVENT:ARRIVAL, e.g. 120:none, 120:~7 or \
                 120:-0,4-6, with @EVENT~N behind it where there is a region"
            )
        };
        let (device, region) = match text.split_once('@') {
            Some((device, region)) => (device, Some(region)),
            None => (text, None),
        };
        let (event, arrival) = device.split_once(':').ok_or_else(bad)?;
        let number = |text: &str| text.parse().map_err(|_| bad());
        let region = region.map(|region| -> Result<InRegion, String> {
            let (event, state) = region.split_once('~').ok_or_else(bad)?;
            Ok(InRegion {
                event: number(event)? as usize,
                state: number(state)?,
            })
        });
        let region = region.transpose()?;
        let event = event.parse().map_err(|_| bad())?;
        let arrival = match arrival.split_at_checked(1) {
            _ if arrival == "none" => Arrival::None,
            _ if arrival == "all" => Arrival::All,
            Some(("=", mask)) => Arrival::Whole(u64::from_str_radix(mask, 16).map_err(|_| bad())?),
            Some(("~", seed)) => Arrival::Drawn(seed.parse().map_err(|_| bad())?),
            Some(("-", list)) => {
                let mut lost: Vec<u32> = Vec::new();
                for part in list.split(',').filter(|p| !p.is_empty()) {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    let first: u32 = first.parse().map_err(|_| bad())?;
                    let last: u32 = last.parse().map_err(|_| bad())?;
                    if (last.saturating_sub(first)) as usize + lost.len() > LOST_MAX {
                        return Err(bad());
                    }
                    lost.extend(first..=last);
                }
                lost.sort_unstable();
                lost.dedup();
                Arrival::Without(lost)
            }
            _ => return Err(bad()),
        };
        Ok(StateId {
            event,
            arrival,
            region,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_crash_is_written_and_read() {
        for text in [
            "0:none",
            "7:all",
            "120:=1f",
            "9:~77",
            "3:-",
            "3:-1",
            "3:-0,4-7,9",
            "120:all@45~3",
        ] {
            let state: StateId = text.parse().unwrap();
            assert_eq!(state.to_string(), text);
        }
        for text in [
            "",
            "x:none",
            "4",
            "4:",
            "4:=g",
            "4:all@",
            "4:all@5",
            "4:all@5~x",
            "4:-1-9999999999",
            "4:-0-4294967295",
        ] {
            assert!(
                text.parse::<StateId>()
                    .unwrap_err()
                    .contains("EVENT:ARRIVAL")
            );
        }
    }

    #[test]
    fn draws_repeat_and_their_kinds_differ() {
        let of: Vec<usize> = (0..80).map(|i| i / 8).collect();
        let kinds: Vec<_> = (0..KINDS).map(|k| draw(&of, 10, 5, 70 + k)).collect();
        for (k, a) in kinds.iter().enumerate() {
            assert_eq!(*a, draw(&of, 10, 5, 70 + k as u64));
            assert!(kinds.iter().filter(|b| *b == a).count() == 1, "kind {k}");
        }
        let lost = |k: usize| kinds[k].iter().filter(|a| !**a).count();
        assert_eq!((lost(3), lost(4), lost(8)), (8, 72, 1));
    }
}
