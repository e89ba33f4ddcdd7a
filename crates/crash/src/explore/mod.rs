//! The search: crashes made from records, each judged once, on all cores, until time is up.
//!
//! Passes: the first visits every place of the record in order (`state::first_pass`); later ones
//! draw further states at places in random order. A family of many small records is searched record
//! by record, one core each; a long record place by place, by all cores.

mod failure;
mod resume;
mod search;

pub(crate) use failure::lost;
pub use failure::{Failure, LostWrite};
pub use resume::Progress;
pub use search::Explorer;

pub use crate::machine::image_hash;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::progress::Teller;
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
    fn len(&self) -> usize {
        match self {
            Source::Record(_) | Source::Seeded { .. } => 1,
            Source::Cases { cases, .. } => cases.len(),
        }
    }
}

/// Searches `source`. `resume` is where an earlier search stopped, and is kept up to date;
/// `save` is called with it now and then.
///
/// # Errors
/// A workload failed on a sound device. Broken promises are no errors: they are in the outcome.
pub fn explore(
    source: &Source<'_>,
    config: &Config,
    resume: &mut Progress,
    save: &(dyn Fn(&Progress) -> Result<()> + Sync),
) -> Result<Outcome> {
    ensure!(
        config.passes.is_some() || config.seconds.is_some(),
        "a search without an end: give a time or a number of passes"
    );
    let start = Instant::now();
    let deadline = config
        .seconds
        .map(|s| start + Duration::from_secs_f64(s.clamp(0.0, 1e8)));
    let bar = teller(config);
    let explorer = Explorer::new(*config, deadline, resume.clone());
    let result = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| explorer.watch(&bar, start, save));
        let result = explorer.run(source);
        explorer.finish();
        let watched = watcher.join();
        result.and(watched.unwrap_or(Ok(())))
    });
    bar.end();
    result?;
    let (mut outcome, progress) = explorer.outcome(source.len() as u64);
    outcome.seconds = start.elapsed().as_secs_f64() + resume.outcome.seconds;
    *resume = progress;
    resume.outcome.seconds = outcome.seconds;
    save(resume)?;
    Ok(outcome)
}

fn teller(config: &Config) -> Teller {
    if !config.bar {
        return Teller::silent();
    }
    let bar = match config.seconds {
        Some(seconds) => ProgressBar::new((seconds * 10.0) as u64),
        None => ProgressBar::new_spinner(),
    };
    let style = match config.seconds {
        Some(_) => "{bar:30} {msg}",
        None => "{spinner} {elapsed} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    Teller::new(bar)
}
