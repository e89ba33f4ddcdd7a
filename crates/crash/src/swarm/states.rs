//! Crashes of a recording: drawn, recovered and judged.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::Plan;
use super::pulse::Pulse;
use crate::judge::{ByKernel, Checks, Finding, abilities};
use crate::machine::Crashed;
use crate::record::Recording;
use crate::state::{StateId, Why};
use crate::walk::Place;
use crate::work::Progresses;

/// Counts of states and checks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tried {
    /// Crash states that were recovered and judged.
    pub states: u64,
    /// Crashes inside recoveries, and inside the recoveries after these.
    pub cuts: u64,
    /// Images that e2fsck checked.
    pub fscks: u64,
    /// Images that the kernel mounted.
    pub mounted: u64,
}

impl Tried {
    /// Adds the counts of another search.
    pub fn add(&mut self, other: &Tried) {
        self.states += other.states;
        self.cuts += other.cuts;
        self.fscks += other.fscks;
        self.mounted += other.mounted;
    }
}

/// The counts of a search, and the first crash that broke a promise.
pub(super) struct Searched {
    pub(super) tried: Tried,
    pub(super) found: Option<(StateId, Finding)>,
}

/// Average number of crashes tried at one place of a recording.
const AT_ONCE: usize = 2;
/// One state in this many is checked by e2fsck.
const FSCK: u8 = 24;
/// One state in this many is used, recovered again and replayed by e2fsck.
const THOROUGH: u8 = 16;
/// One state in this many is mounted by the kernel, if that is asked for.
const KERNEL: u8 = 8;
/// One state in this many is recovered with cuts.
const CUT: u8 = 10;

/// Tries as many states as `asked` says.
pub(super) fn search(recording: &Recording, plan: &Plan, asked: Asked, pulse: &Pulse) -> Searched {
    let mut search = Search {
        recording,
        plan,
        kernel: match asked.kernel {
            true => abilities(&recording.work.base.image),
            false => ByKernel::No,
        },
        every: asked.every,
        rng: fastrand::Rng::with_seed(plan.seed.rotate_left(20)),
        tried: Tried::default(),
    };
    let found = search.all(asked.states, pulse);
    pulse.ends("judge");
    Searched {
        tried: search.tried,
        found,
    }
}

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) states: u64,
    /// Whether the kernel mounts some states.
    pub(super) kernel: bool,
    /// Whether the costly checks are done for each state.
    pub(super) every: bool,
}

struct Search<'a> {
    recording: &'a Recording,
    plan: &'a Plan,
    /// The comparisons with the kernel that are asked for and possible.
    kernel: ByKernel,
    every: bool,
    rng: fastrand::Rng,
    tried: Tried,
}

impl Search<'_> {
    fn all(&mut self, states: u64, pulse: &Pulse) -> Option<(StateId, Finding)> {
        let recording = self.recording;
        let places = self.places((states as usize).div_ceil(AT_ONCE));
        let base = recording.work.machine();
        let mut walk = recording.walk(&base);
        let mut left = (states as usize, places.len());
        for (place, why) in places {
            walk.advance_to(place);
            let uncertain = walk.uncertain();
            let mut all = walk.first_pass(place, why, &uncertain, self.rng.u64(..));
            self.rng.shuffle(&mut all);
            // A place with few different crashes leaves more of them to the others.
            all.truncate(left.0.div_ceil(left.1));
            left = (left.0 - all.len(), left.1 - 1);
            for state in all {
                pulse.begins("judge", &state);
                let image = walk.make_of(&state, &uncertain);
                let progress = recording.work.progress_at(&recording.log, state.event);
                if let Err(finding) = self.judge(&image, &progress) {
                    return Some((state, finding));
                }
            }
        }
        None
    }

    /// Chooses `count` places, as many of each kind as possible. Otherwise most would be behind a
    /// write, where less is promised. Places behind the device's failure are kinds of their own.
    fn places(&mut self, count: usize) -> Vec<(Place, Why)> {
        let failure = self.recording.failure().unwrap_or(usize::MAX);
        let mut kinds: BTreeMap<(bool, Why), Vec<(Place, Why)>> = BTreeMap::new();
        for (place, why) in self.recording.places(0) {
            let kind = (place.event > failure, why);
            kinds.entry(kind).or_default().push((place, why));
        }
        let mut drawn = Vec::new();
        for mut places in kinds.into_values() {
            self.rng.shuffle(&mut places);
            drawn.extend(places.into_iter().enumerate());
        }
        // The first of each kind, then the second, and so on.
        drawn.sort_by_key(|(n, _)| *n);
        drawn.truncate(count);
        let mut drawn: Vec<_> = drawn.into_iter().map(|(_, place)| place).collect();
        // A walk only moves forwards.
        drawn.sort_unstable();
        drawn
    }

    fn one_in(&mut self, n: u8) -> bool {
        self.rng.u8(0..n) == 0 || self.every
    }

    fn judge(&mut self, image: &Crashed, progress: &Progresses) -> Result<(), Finding> {
        let thorough = self.one_in(THOROUGH);
        // The use of the volume needs space for new files.
        let is_usable = self.plan.is("fullness", "empty") && self.plan.is("quota", "no");
        let checks = Checks {
            fsck: self.one_in(FSCK),
            in_use: thorough && is_usable,
            again: thorough,
            replay: thorough,
            kernel: match self.one_in(KERNEL) {
                true => self.kernel,
                false => ByKernel::No,
            },
        };
        self.tried.states += 1;
        self.tried.fscks += u64::from(checks.fsck);
        self.tried.mounted += u64::from(checks.kernel != ByKernel::No);
        let work = &self.recording.work;
        work.check(image, progress, checks)?;
        let is_cut = !self.plan.is("recovery", "whole") && self.one_in(CUT);
        if is_cut {
            let twice = self.plan.is("recovery", "cut-twice");
            let seed = self.rng.u64(..);
            let cuts = work.check_drawn_cuts(image, progress, seed, twice)?;
            self.tried.cuts += cuts.first + cuts.second;
        }
        Ok(())
    }
}
