//! How to search, and what.

use anyhow::Result;

use crate::record::Recording;
use crate::setup::{JournalSpec, Shape};
use crate::workload::Case;

/// How often something costly is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// Not at all.
    Never,
    /// For one image in so many.
    OneIn(u64),
    /// Always.
    Always,
}

impl Often {
    /// Whether it is this image's turn; the same images are chosen in every run.
    pub(crate) fn hits(self, hash: u64) -> bool {
        match self {
            Often::Never => false,
            Often::OneIn(n) => hash.is_multiple_of(n.max(1)),
            Often::Always => true,
        }
    }
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Decides all draws.
    pub seed: u64,
    /// States that are judged at once.
    pub threads: usize,
    /// Stop then.
    pub seconds: Option<f64>,
    /// Stop at so many states.
    pub states: Option<u64>,
    /// Passes over the record; `None`: until time is up.
    pub passes: Option<u64>,
    /// Stop at so many failures.
    pub failures: usize,
    /// e2fsck.
    pub fsck: Often,
    /// Using the recovered volume, recovering it again, comparing with e2fsck's replay.
    pub thorough: Often,
    /// Crashes inside the recovery, at every write of it.
    pub recovery: Often,
    /// Tell how far it is.
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

/// Where records come from.
pub enum Source<'a> {
    /// One that is there.
    Record(&'a Recording),
    /// Made anew, from the next seed, after every few passes.
    Seeded {
        /// The journal it runs on.
        journal: &'a JournalSpec,
        /// The volume.
        shape: Shape,
        /// What is done, of a seed.
        make: &'a (dyn Fn(u64) -> Result<Case> + Sync),
    },
    /// A family, made one after the other.
    Cases {
        /// The journal they run on.
        journal: &'a JournalSpec,
        /// The volume.
        shape: Shape,
        /// What is done.
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
