//! Shrinking: finds the shortest workload and the smallest loss that still break a promise.

use std::time::Instant;

use anyhow::Result;

use crate::explore::Failure;
use crate::judge::{ByKernel, Checks, Finding, Oracle};
use crate::record::Recording;
use crate::setup::{JournalSpec, Shape};
use crate::state::{Arrival, InRegion, StateId, Uncertain};
use crate::walk::{EVERYTHING, Walk, but_line};
use crate::workload::model::State;
use crate::workload::{Case, Op, text};

/// A state that shows the fault, with its recording.
struct Shown {
    recording: Recording,
    state: StateId,
    finding: Finding,
}

/// The fault to find again, the setup, and the deadline.
struct Search<'a> {
    journal: &'a JournalSpec,
    shape: Shape,
    seed: u64,
    oracle: Oracle,
    deadline: Instant,
}

/// Number of states tried for a candidate workload.
const STATES: usize = 600;

/// Shrinks a failure that a state of `recording` showed. Gives the smallest failure found before
/// the deadline, and its recording.
///
/// # Errors
/// The failure does not name a state of the recording.
pub fn shrink(
    recording: &Recording,
    failure: &Failure,
    deadline: Instant,
) -> Result<(Failure, Recording)> {
    let journal: JournalSpec = recording
        .header
        .journal
        .parse()
        .map_err(anyhow::Error::msg)?;
    let search = Search {
        journal: &journal,
        shape: recording.header.shape(),
        seed: recording.header.seed,
        oracle: failure.finding.oracle,
        deadline,
    };
    let mut best = Shown {
        recording: recording.clone(),
        state: failure.state.parse().map_err(anyhow::Error::msg)?,
        finding: failure.finding.clone(),
    };
    search.workload(&mut best)?;
    search.loss(&mut best);
    let mut small = Failure::describe(&best.recording, &best.state, best.finding);
    small.script = Some(text::write(&best.recording.case()?.scripts));
    Ok((small, best.recording))
}

impl Search<'_> {
    fn over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn checks(&self) -> Checks {
        match self.oracle {
            Oracle::Promise | Oracle::Space | Oracle::Clean | Oracle::Live | Oracle::Hang => {
                Checks::default()
            }
            Oracle::Opens | Oracle::Fsck | Oracle::Again => Checks::OURS,
            Oracle::Replay => Checks::ALL,
            Oracle::Kernel => Checks {
                kernel: ByKernel::Recovered,
                ..Checks::default()
            },
        }
    }

    /// The finding of a state, if it is of the kind sought.
    fn shows(
        &self,
        recording: &Recording,
        walk: &Walk<'_>,
        uncertain: &Uncertain,
        state: &StateId,
    ) -> Option<Finding> {
        let image = walk.make_of(state, uncertain);
        let progress = recording.work.progress_at(&recording.log, state.event);
        let finding = recording
            .work
            .check(&image, &progress, self.checks())
            .err()?;
        (finding.oracle == self.oracle).then_some(finding)
    }

    /// A state of a fresh recording of the case that shows the fault.
    fn find(&self, case: &Case) -> Option<Shown> {
        let recording = Recording::make(self.journal, self.shape, case, self.seed).ok()?;
        let mut found = None;
        let base = recording.work.machine();
        let mut walk = recording.walk(&base);
        let mut tried = 0;
        'places: for (place, why) in recording.places(0) {
            walk.advance_to(place);
            let uncertain = walk.uncertain();
            for state in walk.first_pass(place, why, &uncertain, self.seed) {
                if tried >= STATES || self.over() {
                    break 'places;
                }
                tried += 1;
                if let Some(finding) = self.shows(&recording, &walk, &uncertain, &state) {
                    found = Some((state, finding));
                    break 'places;
                }
            }
        }
        drop(walk);
        let (state, finding) = found?;
        Some(Shown {
            recording,
            state,
            finding,
        })
    }

    /// Removes threads and operations as long as a crash still shows the fault.
    fn workload(&self, best: &mut Shown) -> Result<()> {
        let mut case = best.recording.case()?;
        case.setup = 0;
        let try_case = |scripts: Vec<Vec<Op>>, best: &mut Shown, case: &mut Case| -> bool {
            let scripts: Vec<_> = scripts.into_iter().map(valid).collect();
            if scripts == case.scripts || scripts.iter().all(Vec::is_empty) {
                return false;
            }
            let candidate = Case {
                scripts,
                ..case.clone()
            };
            match self.find(&candidate) {
                Some(shown) => {
                    (*best, *case) = (shown, candidate);
                    true
                }
                None => false,
            }
        };
        // Operations begun after the crash do not matter.
        let progress = best
            .recording
            .work
            .progress_at(&best.recording.log, best.state.event);
        let cut = case
            .scripts
            .iter()
            .zip(&progress)
            .map(|(s, p)| s.iter().take(p.begun).cloned().collect())
            .collect();
        try_case(cut, best, &mut case);
        let mut thread = 0;
        while case.scripts.len() > 1 && thread < case.scripts.len() && !self.over() {
            let mut fewer = case.scripts.clone();
            fewer.remove(thread);
            if !try_case(fewer, best, &mut case) {
                thread += 1;
            }
        }
        for thread in 0..case.scripts.len() {
            let mut chunk = case.scripts[thread].len().div_ceil(2);
            while chunk > 0 && !self.over() {
                let mut at = 0;
                let before = case.scripts[thread].len();
                while at < case.scripts[thread].len() && !self.over() {
                    let mut fewer = case.scripts.clone();
                    let end = (at + chunk).min(fewer[thread].len());
                    fewer[thread].drain(at..end);
                    if !try_case(fewer, best, &mut case) {
                        at += chunk;
                    }
                }
                // Passes with single operations repeat as long as they help.
                chunk = match chunk {
                    1 if case.scripts[thread].len() < before => 1,
                    n => n / 2,
                };
            }
        }
        Ok(())
    }

    /// Lets lost writes arrive, whole writes first, then sectors, as long as the state still shows
    /// the fault.
    fn loss(&self, best: &mut Shown) {
        let recording = &best.recording;
        let base = recording.work.machine();
        let mut walk = recording.walk(&base);
        walk.advance_to_state(&best.state);
        let uncertain = walk.uncertain();
        let Arrival::Without(mut lost) = best.state.without(&uncertain).arrival else {
            return;
        };
        let event = best.state.event;
        let mut region = best.state.region;
        let mut finding = None;
        let mut shows = |lost: &[u32], region: Option<InRegion>| {
            let state = StateId {
                event,
                arrival: Arrival::Without(lost.to_vec()),
                region,
            };
            let found = self.shows(recording, &walk, &uncertain, &state);
            let shown = found.is_some();
            finding = found.or(finding.take());
            shown
        };
        // All lines of the region arrive, or all but one.
        let but_one = (0..uncertain.lines.len()).map(but_line);
        for state in std::iter::once(EVERYTHING).chain(but_one) {
            let fewer = region.map(|region| InRegion { state, ..region });
            if fewer.is_none() || self.over() {
                break;
            }
            if shows(&lost, fewer) {
                region = fewer;
                break;
            }
        }
        let mut chunk = lost.len();
        while chunk > 0 && !self.over() {
            let mut at = 0;
            while at < lost.len() && !self.over() {
                let mut fewer = lost.clone();
                fewer.drain(at..(at + chunk).min(lost.len()));
                if shows(&fewer, region) {
                    lost = fewer;
                } else {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
        best.state.arrival = Arrival::Without(lost);
        best.state.region = region;
        best.finding = finding.unwrap_or_else(|| best.finding.clone());
    }
}

/// The operations that can still succeed without the removed ones, in order.
fn valid(ops: Vec<Op>) -> Vec<Op> {
    let mut state = State::new(4096, false);
    let mut out = Vec::new();
    for op in ops {
        if state.allows(&op).is_ok() {
            state.apply(&op, out.len() + 1);
            out.push(op);
        }
    }
    out
}
