//! What a search did.

use serde::Serialize;

use super::failure::Failure;
use crate::record::Recording;

/// What a search did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Crash states.
    pub states: u64,
    /// Different images among them.
    pub distinct: u64,
    /// Images that were recovered and judged: an image counts again if more had been promised.
    pub judged: u64,
    /// States that broke a promise.
    pub failures: u64,
    /// Time, also that of earlier runs that were resumed.
    pub seconds: f64,
    /// Images that e2fsck looked at.
    pub fscks: u64,
    /// Images that were used, recovered again, and replayed by e2fsck.
    pub thorough: u64,
    /// Crashes inside recoveries.
    pub recovery_cuts: u64,
    /// Crashes inside the recoveries that came after such a crash.
    pub second_recovery_cuts: u64,
    /// Batches that the device shared, in all records that were made.
    pub shares: u64,
    /// Crash states in which something had been shared and not flushed: inside a checkpoint.
    pub share_states: u64,
    /// Of these, the ones that keep a part of a batch.
    pub torn_states: u64,
    /// Crash states in which lines of the region were stored to and not fenced.
    pub line_states: u64,
    /// Records that were searched to the end of the first pass.
    pub cases_done: u64,
    /// Records there are.
    pub cases: u64,
    /// Passes finished.
    pub passes: u64,
    /// The first failures.
    pub findings: Vec<Failure>,
    /// The records that showed them, by the name of the case.
    #[serde(skip)]
    pub records: Vec<(String, Recording)>,
}

impl Outcome {
    /// Rate.
    pub fn states_per_second(&self) -> f64 {
        self.states as f64 / self.seconds.max(1e-9)
    }
}
