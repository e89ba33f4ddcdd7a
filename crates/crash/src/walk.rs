//! A walk through the recordings of a device and of the region beside it, and the crashes that both
//! allow.
//!
//! A place in them is a number of device events and a number of region events. A region event whose
//! clock shows `n` comes after the first `n` events of the device and before the next one.

use stetfs_block::{Log, Replay};
use stetfs_nvm::{MemRegion, RegionLog, RegionReplay, What};

use crate::machine::{Crashed, Machine};
use crate::state::{self, Arrival, InRegion, StateId, Uncertain, Why, points};

/// A place in both recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of device events before it.
    pub event: usize,
    /// Number of region events before it.
    pub region: usize,
}

/// Most special states of the region ([`RegionReplay::special_states`]) at a fence for which each
/// is tried.
const SPECIAL: u64 = 24;
/// Number of mixtures of lines tried at a fence; with more special states only these are tried.
const MIXTURES: u64 = 6;

/// The places to crash at, from device event `from` on: those of the device alone, and those after
/// each store to the region and before each of its fences returns.
pub fn places(log: &Log, region: &RegionLog, from: usize) -> Vec<(Place, Why)> {
    let of_device = points(log, from).into_iter().map(|(event, why)| {
        let region = region.position_at(event as u64);
        (Place { event, region }, why)
    });
    let of_region = region.events.iter().enumerate().filter_map(|(i, e)| {
        let (region, why) = match e.what {
            What::Store { .. } => (i + 1, Why::Write),
            What::Fence => (i, Why::Fence),
            What::Flush { .. } | What::Mark { .. } => return None,
        };
        let event = e.at as usize;
        (event >= from).then_some((Place { event, region }, why))
    });
    let mut all: Vec<_> = of_device.chain(of_region).collect();
    all.sort_unstable();
    all
}

/// A walk through both recordings that makes the states a crash can leave.
pub struct Walk<'l> {
    device: Replay<'l>,
    region: Option<RegionReplay<'l>>,
    log: &'l RegionLog,
}

impl<'l> Walk<'l> {
    /// A walk before the first event, with the machine as it was then.
    pub fn new(base: &Crashed, log: &'l Log, region: &'l RegionLog) -> Walk<'l> {
        let memory = base.region.as_ref();
        Walk {
            device: Replay::new(&base.device, log),
            region: memory.map(|memory| RegionReplay::new(memory, region)),
            log: region,
        }
    }

    /// Moves to a place, forwards only.
    pub fn advance_to(&mut self, place: Place) {
        self.device.advance_to(place.event);
        if let Some(region) = &mut self.region {
            region.advance_to(place.region);
        }
    }

    /// Moves to the place of a state.
    pub fn advance_to_state(&mut self, state: &StateId) {
        let event = state.event;
        let region = match state.region {
            Some(InRegion { event, .. }) => event,
            None => self.log.position_at(event as u64),
        };
        self.advance_to(Place { event, region });
    }

    /// The uncertain sectors and lines at the present place.
    pub fn uncertain(&self) -> Uncertain {
        let mut uncertain = Uncertain::at(&self.device);
        if let Some(region) = &self.region {
            uncertain.lines = region.pending();
        }
        uncertain
    }

    /// The machine that crash `state` leaves, at the present place with its uncertain writes.
    pub fn make_of(&self, state: &StateId, uncertain: &Uncertain) -> Crashed {
        let device = state.make_of(&self.device, uncertain);
        let region = |region: &RegionReplay<'_>| match state.region {
            Some(InRegion { state, .. }) => region.state(0, state),
            None => region.everything(),
        };
        Machine::new(device, self.region.as_ref().map(region))
    }

    /// The machine that crash `state` leaves. Moves the walk there; it must not be past it.
    pub fn make(&mut self, state: &StateId) -> Crashed {
        self.advance_to_state(state);
        self.make_of(state, &self.uncertain())
    }

    /// Number of uncertain lines at the present place that do not hold their last store.
    pub fn lost_lines(&self, crashed: &Crashed) -> usize {
        let (Some(walk), Some(left)) = (&self.region, &crashed.region) else {
            return 0;
        };
        let line = |region: &MemRegion, at: u64| {
            let mut bytes = [0; stetfs_nvm::LINE as usize];
            stetfs_nvm::Region::read(region, at, &mut bytes).map(|()| bytes)
        };
        let stored = walk.everything();
        let is_lost =
            |at: u64| !matches!((line(&stored, at), line(left, at)), (Ok(a), Ok(b)) if a == b);
        let pending = walk.pending().into_iter();
        pending.filter(|pending| is_lost(pending.offset)).count()
    }

    /// The crashes that the first pass tries at the present place.
    pub fn first_pass(
        &self,
        place: Place,
        why: Why,
        uncertain: &Uncertain,
        seed: u64,
    ) -> Vec<StateId> {
        let of_device = match why {
            Why::Fence => Why::Write,
            why => why,
        };
        let device = state::first_pass(place.event, of_device, uncertain, seed);
        let Some(region) = &self.region else {
            return device;
        };
        let states = first_states(region, why, seed.wrapping_add(place.region as u64));
        let both = |arrival: &Arrival, state: u64| StateId {
            event: place.event,
            arrival: arrival.clone(),
            region: Some(InRegion {
                event: place.region,
                state,
            }),
        };
        let count = device.len().max(states.len());
        let paired = device.iter().cycle().zip(states.iter().cycle()).take(count);
        let mut all: Vec<StateId> = paired.map(|(d, r)| both(&d.arrival, *r)).collect();
        // One side keeps everything and the other loses everything.
        if device.len() > 1 && states.len() > 1 {
            all.extend([
                both(&Arrival::None, EVERYTHING),
                both(&Arrival::All, NOTHING),
            ]);
        }
        all
    }

    /// A random crash of device and region at the present place.
    pub fn drawn(&self, place: Place, seed: u64) -> StateId {
        let region = self.region.as_ref().map(|region| InRegion {
            event: place.region,
            state: mixture(region, seed),
        });
        StateId {
            event: place.event,
            arrival: Arrival::Drawn(seed),
            region,
        }
    }
}

/// Number of a state ([`RegionReplay::state`]) in which no uncertain line arrived.
const NOTHING: u64 = 0;
/// Number of the state in which all lines arrived.
pub(crate) const EVERYTHING: u64 = 1;

/// Number of the state in which all uncertain lines but number `n` arrived.
pub(crate) fn but_line(n: usize) -> u64 {
    3 + 2 * n as u64
}

/// A mixture of lines; mixtures are numbered after the special states.
fn mixture(region: &RegionReplay<'_>, seed: u64) -> u64 {
    region.special_states() + seed % (1 << 32)
}

/// The region's states that the first pass tries.
fn first_states(region: &RegionReplay<'_>, why: Why, seed: u64) -> Vec<u64> {
    let special = region.special_states();
    match why {
        // Nothing is uncertain.
        _ if special <= 2 => vec![NOTHING],
        Why::Fence => {
            let alone = (special <= SPECIAL).then_some(2..special);
            let mixtures = (0..MIXTURES).map(|i| mixture(region, seed.wrapping_add(i)));
            let ends = [NOTHING, EVERYTHING].into_iter();
            ends.chain(alone.into_iter().flatten())
                .chain(mixtures)
                .collect()
        }
        _ => vec![NOTHING, EVERYTHING, mixture(region, seed)],
    }
}
