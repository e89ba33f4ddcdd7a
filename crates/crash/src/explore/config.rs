//! The parameters of a search, and the source of its recordings.

use anyhow::Result;

use crate::record::Recording;
use crate::setup::{JournalSpec, Shape};
use crate::workload::Case;

/// The frequency of a costly check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// Not at all.
    Never,
    /// For one image in this many.
    OneIn(u64),
    /// Always.
    Always,
}

impl Often {
    /// Whether the check is due for this image; every run chooses the same images.
    pub(crate) fn hits(self, hash: u64) -> bool {
        match self {
            Often::Never => false,
            Often::OneIn(n) => hash.is_multiple_of(n.max(1)),
            Often::Always => true,
        }
    }
}

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Seed of all draws.
    pub seed: u64,
    /// Number of states that are judged at once.
    pub threads: usize,
    /// Time limit in seconds.
    pub seconds: Option<f64>,
    /// Stop after this many states.
    pub states: Option<u64>,
    /// Passes over the recording; `None`: until time is up.
    pub passes: Option<u64>,
    /// Stop after this many failures.
    pub failures: usize,
    /// Frequency of e2fsck.
    pub fsck: Often,
    /// Frequency of the thorough checks: use the recovered volume, recover it again, compare with
    /// e2fsck's replay.
    pub thorough: Often,
    /// Frequency of crashes inside the recovery, at each of its writes.
    pub recovery: Often,
    /// Show a progress bar.
    pub bar: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            seconds: None,
            states: None,
            passes: Some(1),
            failures: 10,
            fsck: Often::OneIn(50),
            thorough: Often::OneIn(25),
            recovery: Often::OneIn(400),
            bar: false,
        }
    }
}

/// The source of recordings.
pub enum Source<'a> {
    /// A recording that exists.
    Record(&'a Recording),
    /// Recordings made during the search, every few passes from the next seed.
    Seeded {
        /// The journal under test.
        journal: &'a JournalSpec,
        /// The volume.
        shape: Shape,
        /// Makes the case for a seed.
        make: &'a (dyn Fn(u64) -> Result<Case> + Sync),
    },
    /// Several small cases, recorded one after the other.
    Cases {
        /// The journal under test.
        journal: &'a JournalSpec,
        /// The volume.
        shape: Shape,
        /// The cases.
        cases: &'a [Case],
    },
}

impl Source<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Source::Record(_) | Source::Seeded { .. } => 1,
            Source::Cases { cases, .. } => cases.len(),
        }
    }
}
