//! What to compare and how.

use std::path::PathBuf;

use super::{Beside, Sizes, Target, Workload};

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
