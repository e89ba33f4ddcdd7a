//! Compares mounted file systems: the same workloads on each, in interleaved rounds.
//!
//! A round runs one workload once on every target; the order of the targets rotates from round to
//! round, so that no target always comes first, and what else the machine does hits all alike.
//! Reported are medians over the rounds and ratios to the first target.

mod command;
mod device;
pub(crate) mod figure;
mod host;
mod log;
mod peers;
mod points;
mod report;
mod sizes;
mod stats;
pub(crate) mod table;
mod target;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub use command::CompareArgs;
pub use device::{Counters, Worn};
pub use log::{Packing, Waits};
pub use peers::{Format, InMemory, KernelFs, PeerSpec, Peers, PeersConfig};
pub use report::{Better, Mark, Metric, Report, Value};
pub use sizes::{Oltp, Postmark, Sizes};
pub use target::Target;
pub use work::{Beside, SqliteJournal, Workload};

pub(crate) use log::LogCounters;
pub(crate) use points::{Points, Run};
pub(crate) use work::place::Place;
pub(crate) use work::scaling::{Work, drive};

use work::Shared;
pub(crate) use work::{Below, Measured, Outcome, sqlite_is_missing, text};

/// What to compare and how.
#[derive(Debug)]
pub struct CompareConfig {
    /// The file systems; ratios are to the first.
    pub targets: Vec<Target>,
    /// What is run.
    pub workloads: Vec<Workload>,
    /// What each workload runs beside, one after the other.
    pub beside: Vec<Beside>,
    /// How often each workload runs on each target.
    pub rounds: u32,
    /// How much work a round does.
    pub sizes: Sizes,
    /// The `sqlite3` program for the SQLite workloads.
    pub sqlite3: PathBuf,
    /// Where each run of a workload is kept as soon as it is done, and looked for: an interrupted
    /// call goes on from there.
    pub saved: Option<PathBuf>,
    /// Show a progress bar (on standard error, if that is a terminal).
    pub progress: bool,
}

impl CompareConfig {
    /// All workloads at normal size, five rounds.
    pub fn new(targets: Vec<Target>) -> Self {
        Self {
            targets,
            workloads: Workload::ALL.to_vec(),
            beside: vec![Beside::ALONE],
            rounds: 5,
            sizes: Sizes::normal(),
            sqlite3: "sqlite3".into(),
            saved: None,
            progress: true,
        }
    }

    /// Three small rounds.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.rounds = 3;
        self.sizes = Sizes::quick();
        self
    }
}

/// Runs the comparison. Each target gets a temporary directory of ours, which is removed again.
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
