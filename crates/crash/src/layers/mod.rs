//! `stetfs crash run --device`: power cuts below StetFS and below a flash translation layer.
//!
//! A workload is recorded as ever. Its requests then go to a device of the layer, event by event,
//! and at each place of the record copies of that lose their power: what waited in caches is lost
//! in part, and the flash may stop at any step inside the request under way. The layer comes up
//! again by itself. What it then shows must be what the model of a crash allows, sector by sector:
//! what was flushed stands. And it is recovered and judged as any other crash.
//!
//! It is no part of the search of [`explore`](crate::explore::explore), whose states are subsets of
//! sectors: which there can be is the layer's to say here, and a state is a place with a draw.

mod below;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::MemDevice;
use stetfs_block::Replay;

pub use below::{Below, Layer, check_sectors};

use crate::explore::image_hash;
use crate::judge::Checks;
use crate::machine::Crashed;
use crate::record::Recording;
use crate::setup::{JournalSpec, Shape};
use crate::state::{Arrival, StateId, points};
use crate::volume::Batches;
use crate::workload::Case;

/// Draws at each place.
const DRAWS: u64 = 3;
/// Of so many images one is looked at by e2fsck, used, and recovered again.
const THOROUGH: u64 = 50;

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// What lies below the volume.
    pub layer: Layer,
    /// Decides the workloads and the draws.
    pub seed: u64,
    /// How long.
    pub seconds: f64,
    /// Records at once.
    pub threads: usize,
    /// Failures to stop at.
    pub failures: usize,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Records made.
    pub records: u64,
    /// Crash states.
    pub states: u64,
    /// Of these, with the power gone inside of the layer's work, perhaps.
    pub drawn: u64,
    /// Different images, each recovered and judged, of a record.
    pub judged: u64,
    /// Images that e2fsck looked at, that were used, and recovered again.
    pub thorough: u64,
    /// Batches that the device shared, in all records.
    pub shares: u64,
    /// States in which a promise was broken.
    pub failures: u64,
    /// Seconds.
    pub seconds: f64,
    /// The first failures, in words.
    pub findings: Vec<String>,
}

/// A search, shared by its threads.
struct Search<'a> {
    how: How,
    out: &'a Path,
    deadline: Instant,
    stop: AtomicBool,
    next: AtomicU64,
    outcome: Mutex<Outcome>,
}

/// Searches until time is up. `make` makes the case of a seed; a workload without one is the same
/// each time. Failures leave their records and images in `out`.
///
/// # Errors
/// A workload failed on a sound device; a journal that shares, with a layer that does not.
pub fn explore(
    how: How,
    journal: &JournalSpec,
    shape: Shape,
    make: &(dyn Fn(u64) -> Result<Vec<Case>> + Sync),
    out: &Path,
) -> Result<Outcome> {
    let start = Instant::now();
    let search = Search {
        how,
        out,
        deadline: start + Duration::from_secs_f64(how.seconds.clamp(0.0, 1e7)),
        stop: AtomicBool::new(false),
        next: AtomicU64::new(0),
        outcome: Mutex::default(),
    };
    // The layers' shares are whole or not at all.
    let shape = Shape {
        batches: Batches::Atomic,
        ..shape
    };
    let work = || -> Result<()> {
        while !search.is_over() {
            let seed = how.seed + search.next.fetch_add(1, Ordering::Relaxed);
            for case in make(seed)? {
                if search.is_over() {
                    break;
                }
                search.record(&Recording::make(journal, shape, &case, seed)?, seed)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..how.threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Ok(());
        for thread in threads {
            let done = thread
                .join()
                .unwrap_or_else(|e| std::panic::resume_unwind(e));
            search.stop.fetch_or(done.is_err(), Ordering::Relaxed);
            all = all.and(done);
        }
        all
    })?;
    let mut outcome = search.outcome.into_inner();
    outcome.seconds = start.elapsed().as_secs_f64();
    Ok(outcome)
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// All places of a record.
    fn record(&self, recording: &Recording, seed: u64) -> Result<()> {
        let (base, log) = (&recording.work.base.image, &recording.log);
        ensure!(
            self.how.layer == Layer::Page || recording.shares() == 0,
            "only --device page shares: without home=share, or with that"
        );
        {
            let mut outcome = self.outcome.lock();
            outcome.records += 1;
            outcome.shares += recording.shares();
        }
        let mut replay = Replay::new(base, log);
        let mut below = Below::new(self.how.layer, base, log)?;
        let mut judged = HashSet::new();
        let random = &mut fastrand::Rng::with_seed(seed);
        for (event, _) in points(log, recording.start()) {
            replay.advance_to(event);
            below.advance_to(event)?;
            let draws = std::iter::repeat_with(|| Arrival::Drawn(random.u64(..)));
            let draws: Vec<Arrival> = draws.take(DRAWS as usize).collect();
            for arrival in [Arrival::None, Arrival::All].into_iter().chain(draws) {
                if self.is_over() {
                    return Ok(());
                }
                let state = StateId {
                    event,
                    arrival,
                    region: None,
                };
                self.state(recording, &replay, &below, &state, &mut judged)?;
            }
        }
        Ok(())
    }

    fn state(
        &self,
        recording: &Recording,
        replay: &Replay<'_>,
        below: &Below<'_>,
        state: &StateId,
        judged: &mut HashSet<(u64, Vec<usize>)>,
    ) -> Result<()> {
        let image = below.left(&state.arrival);
        let drawn = matches!(state.arrival, Arrival::Drawn(_));
        {
            let mut outcome = self.outcome.lock();
            outcome.states += 1;
            outcome.drawn += u64::from(drawn);
        }
        let image = match image {
            Ok(image) => image,
            Err(e) => return self.broken(recording, state, &format!("{e:#}"), None),
        };
        if let Err(e) = check_sectors(replay, &recording.log, &image) {
            return self.broken(recording, state, &format!("{e:#}"), Some(&image));
        }
        let work = &recording.work;
        let progress = work.progress_at(&recording.log, state.event);
        let hash = image_hash(&work.base.image, &image);
        let far = progress.iter().flat_map(|p| [p.acked, p.begun]).collect();
        if !judged.insert((hash, far)) {
            return Ok(());
        }
        let thorough = hash.is_multiple_of(THOROUGH);
        {
            let mut outcome = self.outcome.lock();
            outcome.judged += 1;
            outcome.thorough += u64::from(thorough);
        }
        let checks = match thorough {
            true => Checks::OURS,
            false => Checks::default(),
        };
        match work.check(&Crashed::of(image.fork()), &progress, checks) {
            Ok(()) => Ok(()),
            Err(finding) => self.broken(recording, state, &finding.to_string(), Some(&image)),
        }
    }

    /// Takes note of a failure, and keeps what shows it.
    fn broken(
        &self,
        recording: &Recording,
        state: &StateId,
        what: &str,
        image: Option<&MemDevice>,
    ) -> Result<()> {
        let mut outcome = self.outcome.lock();
        outcome.failures += 1;
        if outcome.failures >= self.how.failures as u64 {
            self.stop.store(true, Ordering::Relaxed);
        }
        let name = recording.header.workload.replace('/', "-");
        let at = self.out.join(format!("{name}-{}", outcome.failures));
        std::fs::create_dir_all(self.out)
            .with_context(|| format!("making {}", self.out.display()))?;
        recording.save(&at.with_extension("record"))?;
        if let Some(image) = image {
            image.save(at.with_extension("img"))?;
        }
        let told = format!(
            "{} seed {}, {state}: {what} ({})",
            recording.header.workload,
            recording.header.seed,
            at.display()
        );
        outcome.findings.push(told);
        Ok(())
    }
}

impl Outcome {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} states of {} records in {:.1} s ({:.0}/s), {} of them drawn; {} images judged, {} thoroughly; {} batches shared\n{} failures\n",
            self.states,
            self.records,
            self.seconds,
            self.states as f64 / self.seconds.max(1e-9),
            self.drawn,
            self.judged,
            self.thorough,
            self.shares,
            self.failures
        );
        for finding in &self.findings {
            text.push_str(finding);
            text.push('\n');
        }
        text
    }
}
