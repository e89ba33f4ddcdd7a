//! Configuration of a comparison.

use std::path::PathBuf;

use super::{Beside, Sizes, Target, Workload};

/// Configuration of a comparison.
#[derive(Debug)]
pub struct CompareConfig {
    /// The file systems; ratios are relative to the first.
    pub targets: Vec<Target>,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The background writers, one after the other, beside which each workload runs.
    pub beside: Vec<Beside>,
    /// Number of runs of each workload on each target.
    pub rounds: u32,
    /// The amount of work per round.
    pub sizes: Sizes,
    /// The `sqlite3` program for the SQLite workloads.
    pub sqlite3: PathBuf,
    /// The file that keeps the result of each run as soon as it is done: an interrupted call
    /// continues from it.
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

    /// Changes it to three small rounds.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.rounds = 3;
        self.sizes = Sizes::quick();
        self
    }
}
