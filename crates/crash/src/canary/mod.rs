//! Canaries: deliberate faults, which the lab must find to prove that it works.
//!
//! [`all`] lists them. `canary=NAME` takes its names from this list, and `stetfs crash canaries`
//! runs the canaries.

mod checkpoint;
pub mod command;
mod commit;
mod data;
mod fault;
mod groups;
mod list;
mod records;
mod recovery;
mod space;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

pub use self::fault::{Fault, Lab, Origin, Stress, Trial};
pub use self::list::{all, find};
use crate::explore::{Config, Often, Outcome, Progress, Source, explore};
use crate::judge::{Checks, Oracle};
use crate::setup::JournalSpec;
use crate::state::StateId;
use crate::stress::{Reexec, round};

/// Bounds of the search for a fault in one setting.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Seed of all draws.
    pub seed: u64,
    /// Time limit in seconds.
    pub seconds: f64,
    /// Most crash states, or stress rounds.
    pub states: u64,
    /// Leave the fault out; then nothing may be found.
    pub sound: bool,
    /// Run only settings that take a moment.
    pub brisk: bool,
}

/// The result of one setting.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    /// The fault's name.
    pub canary: &'static str,
    /// The journal under test.
    pub journal: String,
    /// The workload, or the end of the stress round.
    pub work: String,
    /// Whether it was found.
    pub caught: bool,
    /// Crash states, or rounds, that were tried.
    pub states: u64,
    /// Distinct images among the states, or images left by rounds.
    pub distinct: u64,
    /// Time in seconds.
    pub seconds: f64,
    /// The oracle that found the fault; `None` for a stress round, whose own judge usually finds
    /// it.
    pub oracle: Option<Oracle>,
    /// A description of the finding.
    pub finding: String,
}

/// Runs a fault in each of its settings whose journal this program has. Calls `told` with each
/// result.
///
/// # Errors
/// A workload failed on a sound device.
pub fn try_fault(
    fault: &Fault,
    bounds: Bounds,
    reexec: Reexec<'_>,
    told: &mut dyn FnMut(&Caught),
) -> Result<Vec<Caught>> {
    let mut all = Vec::new();
    for trial in fault.trials {
        if (bounds.brisk && trial.is_slow()) || trial.missing().is_some() {
            continue;
        }
        for journal in trial.journals() {
            let started = Instant::now();
            let with = match bounds.sound {
                true => journal.clone(),
                false => format!("{journal},canary={}", fault.name),
            };
            let mut caught = match trial {
                Trial::Lab(lab) => in_lab(fault, lab, &with, bounds)?,
                Trial::Stress(stress) => in_stress(fault, stress, &with, bounds, reexec)?,
                Trial::Suite(..) | Trial::Model(..) => continue,
            };
            caught.journal = journal;
            caught.seconds = started.elapsed().as_secs_f64();
            told(&caught);
            all.push(caught);
        }
    }
    Ok(all)
}

fn in_lab(fault: &Fault, lab: &Lab, journal: &str, bounds: Bounds) -> Result<Caught> {
    let journal: JournalSpec = journal.parse().map_err(anyhow::Error::msg)?;
    let cases = lab.cases(fault.name, bounds.seed)?;
    let source = Source::Cases {
        journal: &journal,
        shape: lab.shape,
        cases: &cases,
    };
    let config = Config {
        seed: bounds.seed,
        seconds: Some(bounds.seconds),
        states: Some(bounds.states),
        passes: None,
        failures: 1,
        // The finding must not need another program.
        fsck: Often::Never,
        thorough: Often::Never,
        recovery: match lab.cuts {
            true => Often::Always,
            false => Often::Never,
        },
        ..Config::default()
    };
    let outcome = explore(&source, &config, &mut Progress::default(), &|_| Ok(()))?;
    let is_fault_s = !lab.in_recovery || bounds.sound || is_sound_without(&outcome)?;
    let found = outcome.findings.first();
    Ok(Caught {
        canary: fault.name,
        journal: String::new(),
        work: lab.work().into(),
        caught: found.is_some() && is_fault_s,
        states: outcome.states,
        distinct: outcome.distinct,
        seconds: 0.0,
        oracle: found.map(|failure| failure.finding.oracle),
        finding: match found {
            Some(failure) if is_fault_s => failure.finding.to_string(),
            Some(failure) => format!("without the canary, too: {}", failure.finding),
            None => "not found".into(),
        },
    })
}

/// Whether the image that showed a fault of recovery is recovered correctly without the fault.
fn is_sound_without(outcome: &Outcome) -> Result<bool> {
    let (Some(failure), Some((_, recording))) = (outcome.findings.first(), outcome.records.first())
    else {
        return Ok(true);
    };
    let mut work = recording.work.clone();
    work.options.canary = Default::default();
    let state: StateId = failure.state.parse().map_err(anyhow::Error::msg)?;
    let image = recording.crashed(&state);
    let progress = work.progress_at(&recording.log, state.event);
    Ok(work.check(&image, &progress, Checks::default()).is_ok())
}

fn in_stress(
    fault: &Fault,
    stress: &Stress,
    journal: &str,
    bounds: Bounds,
    reexec: Reexec<'_>,
) -> Result<Caught> {
    let until = Instant::now() + Duration::from_secs_f64(bounds.seconds.clamp(0.0, 1e6));
    let (mut rounds, mut images, mut finding) = (0, 0, None);
    while finding.is_none() && rounds < bounds.states && Instant::now() < until {
        let setting = stress.round(journal.into(), bounds.seed, rounds);
        let told = round(&setting, false, None, reexec)?;
        rounds += 1;
        images += told.images;
        finding = told.broken.first().map(|broken| broken.detail.clone());
    }
    Ok(Caught {
        canary: fault.name,
        journal: String::new(),
        work: format!("stress, {:?}", stress.end).to_lowercase(),
        caught: finding.is_some(),
        states: rounds,
        distinct: images,
        seconds: 0.0,
        oracle: None,
        finding: finding.unwrap_or_else(|| "not found".into()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::list::PROMISE;
    use super::*;

    #[test]
    fn each_switch_is_in_the_table_once() {
        let mut names: Vec<_> = all().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        let mut union: JournalSpec = "ordered".parse().unwrap();
        for fault in all() {
            let mut one: JournalSpec = "ordered".parse().unwrap();
            let sound = (one.options.canary, one.promise);
            (fault.set)(&mut one);
            assert_ne!((one.options.canary, one.promise), sound, "{}", fault.name);
            let said = format!("{:?}", one.options.canary);
            let field = fault.name.replace('-', "_");
            assert!(
                fault.name == PROMISE.name || said.contains(&format!(" {field}: true")),
                "{}: {said}",
                fault.name
            );
            (fault.set)(&mut union);
        }
        let off = format!("{:?}", union.options.canary);
        assert!(!off.contains("false"), "a switch that no fault uses: {off}");
    }

    /// The line of a test that switches the fault on.
    fn planted(fault: &Fault) -> String {
        format!("canary.{} = true", fault.name.replace('-', "_"))
    }

    #[test]
    fn each_fault_that_a_model_plants_is_listed_with_it() {
        let folder = format!("{}/../journal/tests/models", env!("CARGO_MANIFEST_DIR"));
        let mut listed = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let model = path.file_stem().unwrap();
            for fault in all().filter(|fault| text.contains(&planted(fault))) {
                let is_listed =
                    |trial: &Trial| matches!(trial, Trial::Model(of, _) if *of == model);
                assert!(fault.trials.iter().any(is_listed), "{}", fault.name);
                listed += 1;
            }
        }
        assert!(listed > 20, "the models were found, not {listed}");
    }

    #[test]
    fn each_setting_can_be_made() {
        for fault in all() {
            assert!(!fault.trials.is_empty(), "{}", fault.name);
            for trial in fault.trials {
                if let Trial::Lab(lab) = trial {
                    assert!(!lab.cases(fault.name, 1).unwrap().is_empty());
                }
                if let Some((file, name)) = trial.test() {
                    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
                    let text = std::fs::read_to_string(path).unwrap();
                    let test = text.split(&format!("fn {name}()")).nth(1);
                    let test = test.and_then(|rest| rest.split("\n}\n").next());
                    let test = test.unwrap_or_else(|| panic!("{file} has no test {name}"));
                    // A model plants the fault that it is listed for.
                    let plants = test.contains(&planted(fault));
                    assert!(plants || !matches!(trial, Trial::Model(..)), "{name}");
                }
                for journal in trial.journals() {
                    let spec: Result<JournalSpec, _> = journal.parse();
                    assert!(spec.is_ok(), "{}: {journal}: {spec:?}", fault.name);
                }
            }
        }
    }
}
