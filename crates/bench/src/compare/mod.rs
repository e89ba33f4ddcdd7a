//! Comparison of mounted file systems: the same workloads on each, in interleaved rounds.
//!
//! A round runs one workload once on every target. The order of the targets rotates from round to
//! round, so that no target always comes first, and other load on the machine affects all alike.
//! The report has medians over the rounds and ratios to the first target.

mod command;
mod config;
mod device;
pub(crate) mod figure;
mod format;
mod host;
mod log;
mod peers;
mod points;
mod program;
mod report;
mod sizes;
mod stats;
pub(crate) mod table;
mod target;
mod work;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub use command::CompareArgs;
pub use config::CompareConfig;
pub use device::{Counters, Worn};
pub use format::Format;
pub use log::{Packing, Waits};
pub use peers::{InMemory, KernelFs, PeerSpec, Peers, PeersConfig};
pub use report::{Mark, Metric, Report, Value};
pub use sizes::{Oltp, Postmark, Sizes};
pub use target::{Target, Unusable};
pub use work::{Beside, Better, SqliteJournal, Workload};

pub(crate) use log::LogCounters;
pub(crate) use points::{Points, Run};
pub(crate) use work::place::Place;
pub(crate) use work::{Work, drive};

use work::Shared;
pub(crate) use work::{Below, Measured, Outcome, sqlite_is_missing, text};

/// Runs the comparison. Each target gets a temporary directory, which is removed at the end.
pub fn run(config: &mut CompareConfig) -> Result<Report> {
    let runs: Vec<(Workload, Beside)> = config
        .workloads
        .iter()
        .flat_map(|&workload| config.beside.iter().map(move |&beside| (workload, beside)))
        .collect();
    if config.targets.is_empty() || config.rounds == 0 || runs.is_empty() {
        bail!("nothing to compare: there must be a target, a workload and a round");
    }
    config.sizes.check()?;
    let points = Points::open(config.saved.as_deref(), &config.sizes)?;
    let shared = Shared::prepare(config)?;
    for target in &mut config.targets {
        target
            .make_work_dir()
            .with_context(|| format!("preparing {}", target.name()))?;
    }
    let steps = runs.len() * config.targets.len() * config.rounds as usize;
    let bar = if config.progress {
        ProgressBar::new(steps as u64)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {elapsed} {msg}",
    )?);

    let names: Vec<String> = config.targets.iter().map(|t| t.name().to_owned()).collect();
    let mut report = Report::new(&names, config.rounds);
    for (workload, beside) in runs {
        if let Some(reason) = shared.cannot_run(workload, &config.targets, beside) {
            report
                .skipped
                .push(format!("{}: {reason}", workload.name()));
            bar.inc(u64::from(config.rounds) * config.targets.len() as u64);
            continue;
        }
        let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
        for round in 0..config.rounds as usize {
            for step in 0..config.targets.len() {
                crate::interrupt::check()?;
                let index = (round + step) % config.targets.len();
                let target = &mut config.targets[index];
                bar.set_message(format!("{} on {}", workload.name(), target.name()));
                let run = Run {
                    workload: format!("{}, beside {beside}", workload.name()),
                    target: target.name().to_owned(),
                    round: round as u32,
                };
                let outcome = points
                    .of(run, || workload.run(target, &config.sizes, &shared, beside))
                    .with_context(|| {
                        format!(
                            "{} on {}, round {}",
                            workload.name(),
                            target.name(),
                            round + 1
                        )
                    })?;
                outcomes.entry(index).or_default().push(outcome);
                bar.inc(1);
            }
        }
        report.add(workload.name(), &outcomes);
        let note = workload.note(&config.targets);
        let note = note.filter(|note| !report.notes.contains(note));
        report.notes.extend(note);
    }
    bar.finish_and_clear();
    Ok(report)
}
