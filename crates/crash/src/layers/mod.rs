//! `stetfs crash run --device`: power cuts below StetFS and below a flash translation layer.
//!
//! The recording of a workload is the usual one. Its requests then go to a device of the layer,
//! event by event, and at each place copies of this device lose their power: a part of the cached
//! writes is lost, and the flash may stop at any step inside the request under way. The layer then
//! starts again by itself. Each sector must hold what the crash model allows: flushed writes stand.
//! The volume is then recovered and judged as after any other crash.
//!
//! This is not a part of the search of [`explore`](crate::explore::explore), whose states are
//! subsets of sectors. Here the layer decides which states exist, and a state is a place with a
//! draw.

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

/// Number of draws at each place.
const DRAWS: u64 = 3;
/// One image in this many is checked by e2fsck, used, and recovered again.
const THOROUGH: u64 = 50;

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The layer below the volume.
    pub layer: Layer,
    /// Seed of the workloads and the draws.
    pub seed: u64,
    /// Time limit in seconds.
    pub seconds: f64,
    /// Number of recordings searched at once.
    pub threads: usize,
    /// Number of failures to stop at.
    pub failures: usize,
}

/// The outcome of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Recordings made.
    pub records: u64,
    /// Crash states.
    pub states: u64,
    /// States that were drawn, so that the power may have gone inside the layer's work.
    pub drawn: u64,
    /// Distinct images of a recording, each recovered and judged.
    pub judged: u64,
    /// Images that e2fsck checked, that were used and recovered again.
    pub thorough: u64,
    /// Batches that the device shared, in all recordings.
    pub shares: u64,
    /// States that broke a promise.
    pub failures: u64,
    /// Time in seconds.
    pub seconds: f64,
    /// The first failures, in words.
    pub findings: Vec<String>,
}

/// A search; its threads share it.
struct Search<'a> {
    how: How,
    out: &'a Path,
    deadline: Instant,
    stop: AtomicBool,
    next: AtomicU64,
    outcome: Mutex<Outcome>,
}

/// Searches until time is up. `make` makes the case for a seed; without it the workload is the same
/// each time. The recordings and images of failures go to `out`.
///
/// # Errors
/// A workload failed on a sound device, or the journal shares and the layer cannot.
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
    // The layers share a batch whole or not at all.
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

    /// Searches all places of a recording.
    fn record(&self, recording: &Recording, seed: u64) -> Result<()> {
        let (base, log) = (&recording.work.base.image, &recording.log);
        ensure!(
            self.how.layer == Layer::Page || recording.shares() == 0,
            "only --device page can share: choose it, or a journal without home=share"
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

    /// Counts a failure, and saves its recording and image.
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
    /// The outcome as text.
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
