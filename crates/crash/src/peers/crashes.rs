//! The crashes of a recording that are tried, and the limits of the search.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use parking_lot::Mutex;
use stetfs::low::MemDevice;
use stetfs_block::{Event, Log, Replay};

use super::recorded::START;
use crate::explore::image_hash;
use crate::marks::{ACKED, BEGUN};
use crate::state::{StateId, Uncertain, first_pass, points};
use crate::workload::Progress;

/// The limits of the search.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Limits {
    /// Most different images to try, of each system or workload.
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub states: usize,
    /// Time to spend on each, in seconds.
    #[arg(long, value_name = "N", default_value_t = 120.0)]
    pub seconds: f64,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The chosen crashes of a recording.
pub(super) struct Crashes<'a> {
    pub(super) base: &'a MemDevice,
    pub(super) log: &'a Log,
    pub(super) chosen: Vec<StateId>,
}

/// A function that gets the number of a crash, the crash, its image, and the progress at the crash.
pub(super) type Looked<'a> =
    dyn Fn(usize, &StateId, &MemDevice, Progress) -> Result<(), String> + Sync + 'a;

impl Crashes<'_> {
    /// Calls `look` for each crash until the time since `begin` is up.
    ///
    /// # Errors
    /// The first error of `look`.
    pub(super) fn each(
        &self,
        threads: usize,
        begin: Instant,
        limits: Limits,
        look: &Looked<'_>,
    ) -> Result<()> {
        let deadline = begin + Duration::from_secs_f64(limits.seconds.clamp(1.0, 1e6));
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(Ok(()));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut replay = Replay::new(self.base, self.log);
                    while Instant::now() < deadline {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(state) = self.chosen.get(i) else {
                            return;
                        };
                        let image = state.make(&mut replay);
                        let told = progress(self.log, state.event);
                        if let Err(e) = look(i, state, &image, told) {
                            *failed.lock() = Err(anyhow!(e));
                            return;
                        }
                    }
                });
            }
        });
        failed.into_inner()
    }
}

fn progress(log: &Log, event: usize) -> Progress {
    let mut progress = Progress::default();
    for (label, n) in log.marks(event) {
        match label {
            BEGUN => progress.begun = n as usize,
            ACKED => progress.acked = n as usize,
            _ => {}
        }
    }
    progress
}

/// The event at which the work begins; 0 if the recording has no mark for it.
pub(super) fn start(log: &Log) -> usize {
    let is_start = |e: &Event| matches!(e, Event::Mark { label, .. } if label == START);
    log.events.iter().position(is_start).unwrap_or(0)
}

/// All states of a first pass.
pub(super) fn candidates(base: &MemDevice, log: &Log, seed: u64) -> Vec<StateId> {
    let mut replay = Replay::new(base, log);
    let mut all = Vec::new();
    for (event, why) in points(log, start(log)) {
        replay.advance_to(event);
        all.extend(first_pass(event, why, &Uncertain::at(&replay), seed));
    }
    all
}

/// Well-spread states with different images, in order of events.
pub(super) fn choose(
    base: &MemDevice,
    log: &Log,
    mut all: Vec<StateId>,
    limits: Limits,
) -> Vec<StateId> {
    fastrand::Rng::with_seed(limits.seed).shuffle(&mut all);
    all.truncate(limits.states.saturating_mul(4));
    all.sort_by_key(|s| s.event);
    let mut replay = Replay::new(base, log);
    let mut seen = HashSet::new();
    let mut chosen: Vec<StateId> = all
        .into_iter()
        .filter(|s| {
            let image = s.make(&mut replay);
            let told = progress(log, s.event);
            seen.insert((image_hash(base, &image), told.begun, told.acked))
        })
        .collect();
    fastrand::Rng::with_seed(limits.seed).shuffle(&mut chosen);
    chosen.truncate(limits.states);
    chosen.sort_by_key(|s| s.event);
    chosen
}
