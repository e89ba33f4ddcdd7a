//! Compares mounted file systems: the same workloads on each, in interleaved rounds.
//!
//! A round runs one workload once on every target; the order of the targets rotates from round to round,
//! so that no target always comes first, and what else the machine does hits all alike. Reported
//! are medians over the rounds and ratios to the first target.

mod command;
mod device;
mod figure;
mod peers;
mod report;
mod stats;
mod target;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub use command::CompareArgs;
pub use device::Counters;
pub use peers::{PeerSpec, Peers, PeersConfig};
pub use report::{Better, Metric, Report, Value};
pub use target::Target;
pub use work::Workload;

use work::Shared;
pub(crate) use work::{Measured, Outcome, text};

/// How much work each workload does. All counts are per round and target.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Writes with a sync in the latency workloads.
    pub syncs: u32,
    /// Size in bytes of the file that is overwritten.
    pub overwrite_bytes: u64,
    /// Files per thread in the create, rename and unlink workload.
    pub names: u32,
    /// `stat` calls.
    pub stats: u32,
    /// Bytes of the sequential workload.
    pub stream_bytes: u64,
    /// Files of the repository that is cloned.
    pub git_files: u32,
    /// SQLite transactions.
    pub transactions: u32,
    /// Seconds of a server profile.
    pub profile_seconds: u32,
    /// Files of the file server.
    pub server_files: u64,
}

impl Sizes {
    /// Enough for steady medians.
    pub fn normal() -> Self {
        Self {
            syncs: 1_000,
            overwrite_bytes: 32 << 20,
            names: 4_000,
            stats: 100_000,
            stream_bytes: 256 << 20,
            git_files: 3_000,
            transactions: 500,
            profile_seconds: 4,
            server_files: 2_000,
        }
    }

    /// A first look, in seconds.
    pub fn quick() -> Self {
        Self {
            syncs: 150,
            overwrite_bytes: 8 << 20,
            names: 500,
            stats: 10_000,
            stream_bytes: 48 << 20,
            git_files: 500,
            transactions: 80,
            profile_seconds: 1,
            server_files: 500,
        }
    }
}

/// What to compare and how.
#[derive(Debug)]
pub struct CompareConfig {
    /// The file systems; ratios are to the first.
    pub targets: Vec<Target>,
    /// What is run.
    pub workloads: Vec<Workload>,
    /// How often each workload runs on each target.
    pub rounds: u32,
    /// How much work a round does.
    pub sizes: Sizes,
    /// The `sqlite3` program for the SQLite workloads.
    pub sqlite3: PathBuf,
    /// Show a progress bar (on standard error, if that is a terminal).
    pub progress: bool,
}

impl CompareConfig {
    /// All workloads at normal size, five rounds.
    pub fn new(targets: Vec<Target>) -> Self {
        Self {
            targets,
            workloads: Workload::ALL.to_vec(),
            rounds: 5,
            sizes: Sizes::normal(),
            sqlite3: "sqlite3".into(),
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
    if config.targets.is_empty() || config.rounds == 0 || config.workloads.is_empty() {
        bail!("nothing to compare: there must be a target, a workload and a round");
    }
    let shared = Shared::prepare(config)?;
    for target in &mut config.targets {
        target
            .make_work_dir()
            .with_context(|| format!("preparing {}", target.name()))?;
    }
    let steps = config.workloads.len() * config.targets.len() * config.rounds as usize;
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
    for &workload in &config.workloads {
        if let Some(reason) = shared.cannot_run(workload) {
            report
                .skipped
                .push(format!("{}: {reason}", workload.name()));
            bar.inc(u64::from(config.rounds) * config.targets.len() as u64);
            continue;
        }
        let mut outcomes: BTreeMap<usize, Vec<Outcome>> = BTreeMap::new();
        for round in 0..config.rounds as usize {
            for step in 0..config.targets.len() {
                let index = (round + step) % config.targets.len();
                let target = &mut config.targets[index];
                bar.set_message(format!("{} on {}", workload.name(), target.name()));
                let outcome = workload
                    .run(target, &config.sizes, &shared)
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
    }
    bar.finish_and_clear();
    Ok(report)
}
