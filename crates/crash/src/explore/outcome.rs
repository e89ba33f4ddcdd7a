//! The outcome of a search: counts and failures.

use serde::Serialize;

use super::failure::Failure;
use crate::record::Recording;

/// The outcome of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Crash states.
    pub states: u64,
    /// Distinct images among these states.
    pub distinct: u64,
    /// Images that were recovered and judged. An image counts again if more had been promised.
    pub judged: u64,
    /// States that broke a promise.
    pub failures: u64,
    /// Time in seconds, with that of earlier runs of a resumed search.
    pub seconds: f64,
    /// Images that e2fsck checked.
    pub fscks: u64,
    /// Images that were used, recovered again, and replayed by e2fsck.
    pub thorough: u64,
    /// Crashes inside recoveries.
    pub recovery_cuts: u64,
    /// Crashes inside the recoveries that follow such a crash.
    pub second_recovery_cuts: u64,
    /// Batches that the device shared, in all recordings made.
    pub shares: u64,
    /// Crash states with shares that were not flushed, that is, inside a checkpoint.
    pub share_states: u64,
    /// States among these that keep only a part of a batch.
    pub torn_states: u64,
    /// Crash states with lines of the region that were stored to and not fenced.
    pub line_states: u64,
    /// Recordings whose first pass is complete.
    pub cases_done: u64,
    /// Recordings in all.
    pub cases: u64,
    /// Passes completed.
    pub passes: u64,
    /// The first failures.
    pub findings: Vec<Failure>,
    /// The recordings that showed them, by the name of the case.
    #[serde(skip)]
    pub records: Vec<(String, Recording)>,
}

impl Outcome {
    /// States judged per second.
    pub fn states_per_second(&self) -> f64 {
        self.states as f64 / self.seconds.max(1e-9)
    }
}
