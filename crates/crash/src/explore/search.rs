//! The search engine: takes crash states pass by pass, judges them by several threads, counts the
//! results.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::{Condvar, Mutex};
use xxhash_rust::xxh3::xxh3_64;

use super::resume::Counts;
use super::{Config, Failure, Outcome, Progress, Source};
use crate::judge::{ByKernel, Checks, Finding, promise};
use crate::machine::Crashed;
use crate::progress::Teller;
use crate::record::Recording;
use crate::state::{StateId, Uncertain, Why};
use crate::walk::{Place, Walk};

/// Number of passes over a recording before the next one is made.
const ROUND: u64 = 3;
/// States drawn at a place in each pass after the first.
const DRAWS: u64 = 4;
/// Interval at which the progress is shown.
const SHOW: Duration = Duration::from_millis(200);
/// Interval at which the progress is saved.
const SAVE: Duration = Duration::from_secs(5);
/// Time after which a state under way is reported as slow.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The completed units of a pass, which complete in any order.
#[derive(Default)]
struct Done {
    pass: u64,
    low: usize,
    above: BTreeSet<usize>,
}

impl Done {
    fn add(&mut self, unit: usize) {
        self.above.insert(unit);
        while self.above.remove(&self.low) {
            self.low += 1;
        }
    }
}

/// A search under way; shared by its threads.
pub struct Explorer {
    config: Config,
    deadline: Option<Instant>,
    before: Progress,
    stop: AtomicBool,
    finished: Mutex<bool>,
    wake: Condvar,
    states: AtomicU64,
    judged: AtomicU64,
    failed: AtomicU64,
    fscks: AtomicU64,
    thorough: AtomicU64,
    recovery_cuts: AtomicU64,
    second_recovery_cuts: AtomicU64,
    shares: AtomicU64,
    share_states: AtomicU64,
    torn_states: AtomicU64,
    line_states: AtomicU64,
    done: Mutex<Done>,
    images: Mutex<HashSet<u64>>,
    /// Hashes of an image together with its promises that are judged already.
    verdicts: Mutex<HashSet<u64>>,
    findings: Mutex<Vec<Failure>>,
    records: Mutex<Vec<(String, Recording)>>,
    /// States under way, with their start times.
    running: Mutex<Vec<(String, Instant)>>,
}

impl Explorer {
    pub(super) fn new(config: Config, deadline: Option<Instant>, before: Progress) -> Explorer {
        let counts = before.outcome.clone();
        let number = AtomicU64::new;
        Explorer {
            config,
            deadline,
            stop: AtomicBool::new(false),
            finished: Mutex::new(false),
            wake: Condvar::new(),
            states: number(counts.states),
            judged: number(counts.judged),
            failed: number(counts.failures),
            fscks: number(counts.fscks),
            thorough: number(counts.thorough),
            recovery_cuts: number(counts.recovery_cuts),
            second_recovery_cuts: number(counts.second_recovery_cuts),
            shares: number(counts.shares),
            share_states: number(counts.share_states),
            torn_states: number(counts.torn_states),
            line_states: number(counts.line_states),
            done: Mutex::new(Done {
                pass: before.pass,
                low: before.next,
                above: BTreeSet::new(),
            }),
            images: Mutex::new(before.images.clone()),
            verdicts: Mutex::new(HashSet::new()),
            findings: Mutex::new(before.findings.clone()),
            records: Mutex::new(Vec::new()),
            running: Mutex::new(Vec::new()),
            before,
        }
    }

    fn over(&self) -> bool {
        let is_enough = |most| self.states.load(Ordering::Relaxed) >= most;
        if self.deadline.is_some_and(|d| Instant::now() >= d)
            || self.config.states.is_some_and(is_enough)
        {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Searches pass by pass.
    pub(super) fn run(&self, source: &Source<'_>) -> Result<()> {
        let mut made = None;
        if let Source::Record(recording) = source {
            self.shares.store(recording.shares(), Ordering::Relaxed);
        }
        for pass in self.before.pass.. {
            if self.over() || self.config.passes.is_some_and(|n| pass >= n) {
                break;
            }
            let first = if pass == self.before.pass {
                self.before.next
            } else {
                0
            };
            match source {
                Source::Record(recording) => self.record(recording, pass, pass, first),
                Source::Seeded {
                    journal,
                    shape,
                    make,
                } => {
                    let round = pass / ROUND;
                    let recording = match made.take() {
                        Some((r, recording)) if r == round => recording,
                        _ => {
                            let seed = self.config.seed.wrapping_add(round);
                            let mut case = make(seed)?;
                            case.name = format!("{}/{seed}", case.name);
                            self.noted(Recording::make(journal, *shape, &case, seed)?)
                        }
                    };
                    self.record(&recording, pass % ROUND, pass, 0);
                    made = Some((round, recording));
                }
                Source::Cases {
                    journal,
                    shape,
                    cases,
                } => self.each(first, cases.len(), |unit| {
                    let case = &cases[unit];
                    let recording = Recording::make(journal, *shape, case, self.config.seed)?;
                    let recording = match pass {
                        0 => self.noted(recording),
                        _ => recording,
                    };
                    self.alone(&recording, pass);
                    Ok(())
                })?,
            }
            if !self.over() {
                *self.done.lock() = Done {
                    pass: pass + 1,
                    ..Done::default()
                };
            }
        }
        Ok(())
    }

    /// Counts the shares of a recording.
    fn noted(&self, recording: Recording) -> Recording {
        self.shares.fetch_add(recording.shares(), Ordering::Relaxed);
        recording
    }

    /// Gives units to the threads, in order; the first error stops all threads.
    fn each(
        &self,
        first: usize,
        count: usize,
        work: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicUsize::new(first);
        let error = Mutex::new(Ok(()));
        std::thread::scope(|scope| {
            for _ in 0..self.config.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let unit = next.fetch_add(1, Ordering::Relaxed);
                        if unit >= count || self.over() {
                            return;
                        }
                        match work(unit) {
                            Err(e) => {
                                *error.lock() = Err(e);
                                self.stop.store(true, Ordering::Relaxed);
                            }
                            Ok(()) if self.stop.load(Ordering::Relaxed) => {}
                            Ok(()) => self.done.lock().add(unit),
                        }
                    }
                });
            }
        });
        error.into_inner()
    }

    /// The places of a pass: all in order in the first pass, then random ones.
    fn places(&self, recording: &Recording, pass: u64) -> Vec<(Place, Why)> {
        let mut all = recording.places(recording.start());
        if pass > 0 {
            let mut rng = fastrand::Rng::with_seed(self.config.seed ^ pass << 40);
            rng.shuffle(&mut all);
            all.truncate(256);
            // A replay only moves forwards.
            all.sort_unstable();
        }
        all
    }

    fn states_at(
        &self,
        walk: &Walk<'_>,
        (place, why): (Place, Why),
        pass: u64,
        uncertain: &Uncertain,
    ) -> Vec<StateId> {
        if pass == 0 {
            return walk.first_pass(place, why, uncertain, self.config.seed);
        }
        let seed = (self.config.seed << 32)
            .wrapping_add(pass.wrapping_mul(DRAWS))
            .wrapping_add((place.event + place.region) as u64);
        let draws = 0..DRAWS;
        draws
            .map(|i| walk.drawn(place, seed.wrapping_add(i)))
            .collect()
    }

    /// Searches one recording by all threads: its first pass, or draw number `draw`.
    fn record(&self, recording: &Recording, pass: u64, draw: u64, first: usize) {
        let places = match pass {
            0 => self.places(recording, 0),
            _ => self.places(recording, draw),
        };
        let pass = if pass == 0 { 0 } else { draw };
        let next = AtomicUsize::new(first);
        let base = recording.work.machine();
        std::thread::scope(|scope| {
            for _ in 0..self.config.threads.max(1) {
                scope.spawn(|| {
                    let mut walk = recording.walk(&base);
                    loop {
                        let unit = next.fetch_add(1, Ordering::Relaxed);
                        let Some(place) = places.get(unit) else {
                            return;
                        };
                        if !self.place(recording, &mut walk, *place, pass) {
                            return;
                        }
                        self.done.lock().add(unit);
                    }
                });
            }
        });
    }

    /// Searches one recording by this thread.
    fn alone(&self, recording: &Recording, pass: u64) {
        let base = recording.work.machine();
        let mut walk = recording.walk(&base);
        for place in self.places(recording, pass) {
            if !self.place(recording, &mut walk, place, pass) {
                return;
            }
        }
    }

    /// Judges all states of one place; false when the search is over.
    fn place(
        &self,
        recording: &Recording,
        walk: &mut Walk<'_>,
        place: (Place, Why),
        pass: u64,
    ) -> bool {
        walk.advance_to(place.0);
        let uncertain = walk.uncertain();
        let shared = uncertain.shared(&recording.log);
        for state in self.states_at(walk, place, pass, &uncertain) {
            if self.over() {
                return false;
            }
            if !shared.is_empty() {
                let is_torn = state.tears(&uncertain, &shared);
                self.share_states.fetch_add(1, Ordering::Relaxed);
                self.torn_states
                    .fetch_add(is_torn.into(), Ordering::Relaxed);
            }
            let has_lines = !uncertain.lines.is_empty();
            self.line_states
                .fetch_add(has_lines.into(), Ordering::Relaxed);
            let image = walk.make_of(&state, &uncertain);
            self.state(recording, &state, &image);
        }
        true
    }

    /// Judges a state, unless an equal one was judged before.
    fn state(&self, recording: &Recording, state: &StateId, image: &Crashed) {
        self.states.fetch_add(1, Ordering::Relaxed);
        let work = &recording.work;
        let hash = image.hash(&work.base.image);
        let new = self.images.lock().insert(hash);
        let progress = work.progress_at(&recording.log, state.event);
        let mut key = Vec::from(hash.to_le_bytes());
        // Recordings of a family differ in their promises; their images may be equal.
        key.extend(recording.header.workload.as_bytes());
        for (script, p) in work.scripts.iter().zip(&progress) {
            let (synced, begun) = promise::window(script, *p, work.promise);
            key.extend((synced as u64).to_le_bytes());
            key.extend((begun as u64).to_le_bytes());
        }
        if !self.verdicts.lock().insert(xxh3_64(&key)) {
            return;
        }
        self.judged.fetch_add(1, Ordering::Relaxed);
        let name = format!("{} {state}", recording.header.workload);
        self.running.lock().push((name.clone(), Instant::now()));
        let result = self.check(recording, image, &progress, new, hash);
        self.running.lock().retain(|(n, _)| *n != name);
        if let Err(finding) = result {
            let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
            let mut findings = self.findings.lock();
            if findings.len() < self.config.failures {
                findings.push(Failure::describe(recording, state, finding));
                let case = &recording.header.workload;
                let mut records = self.records.lock();
                if !records.iter().any(|(name, _)| name == case) {
                    records.push((case.clone(), recording.clone()));
                }
            }
            if failed >= self.config.failures as u64 {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn check(
        &self,
        recording: &Recording,
        image: &Crashed,
        progress: &crate::work::Progresses,
        new: bool,
        hash: u64,
    ) -> Result<(), Finding> {
        let config = &self.config;
        // The costly checks do not depend on the promises.
        let thorough = new && config.thorough.hits(hash);
        let checks = Checks {
            fsck: new && config.fsck.hits(hash.rotate_left(8)),
            in_use: thorough,
            again: thorough,
            replay: thorough,
            kernel: ByKernel::No,
        };
        self.fscks
            .fetch_add(u64::from(checks.fsck), Ordering::Relaxed);
        self.thorough
            .fetch_add(u64::from(thorough), Ordering::Relaxed);
        recording.work.check(image, progress, checks)?;
        if new && config.recovery.hits(hash.rotate_left(16)) {
            let cuts = recording.work.check_cut_recovery(image, progress)?;
            self.recovery_cuts.fetch_add(cuts.first, Ordering::Relaxed);
            self.second_recovery_cuts
                .fetch_add(cuts.second, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Shows and saves the progress until the search ends.
    pub(super) fn watch(
        &self,
        bar: &Teller,
        start: Instant,
        save: &(dyn Fn(&Progress) -> Result<()> + Sync),
    ) -> Result<()> {
        let mut saved = Instant::now();
        let mut finished = self.finished.lock();
        while !*finished {
            self.wake.wait_for(&mut finished, SHOW);
            let seconds = start.elapsed().as_secs_f64();
            let states = self.states.load(Ordering::Relaxed);
            let fresh = states - self.before.outcome.states;
            let left = self.deadline.map_or(String::new(), |d| {
                let left = d.saturating_duration_since(Instant::now());
                format!(", {} s left", left.as_secs())
            });
            bar.position((seconds * 10.0) as u64);
            bar.say(format!(
                "{states} states, {} images, {:.0}/s, {} failures{left}",
                self.images.lock().len(),
                fresh as f64 / seconds.max(1e-3),
                self.failed.load(Ordering::Relaxed),
            ));
            for (name, since) in self.running.lock().iter_mut() {
                if since.elapsed() > TIMEOUT {
                    bar.line(&format!("{name} may hang: judging it takes very long"));
                    *since = Instant::now();
                }
            }
            if saved.elapsed() > SAVE {
                saved = Instant::now();
                save(&self.progress())?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self) {
        *self.finished.lock() = true;
        self.wake.notify_all();
    }

    fn progress(&self) -> Progress {
        let done = self.done.lock();
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Progress {
            what: self.before.what.clone(),
            pass: done.pass,
            next: done.low,
            outcome: Counts {
                states: get(&self.states),
                judged: get(&self.judged),
                failures: get(&self.failed),
                seconds: self.before.outcome.seconds,
                fscks: get(&self.fscks),
                thorough: get(&self.thorough),
                recovery_cuts: get(&self.recovery_cuts),
                second_recovery_cuts: get(&self.second_recovery_cuts),
                shares: get(&self.shares),
                share_states: get(&self.share_states),
                torn_states: get(&self.torn_states),
                line_states: get(&self.line_states),
            },
            findings: self.findings.lock().clone(),
            images: self.images.lock().clone(),
        }
    }

    pub(super) fn outcome(&self, cases: u64) -> (Outcome, Progress) {
        let progress = self.progress();
        let counts = &progress.outcome;
        let done = match (progress.pass, cases) {
            (0, 1) => 0,
            (0, _) => progress.next as u64,
            _ => cases,
        };
        let outcome = Outcome {
            states: counts.states,
            distinct: progress.images.len() as u64,
            judged: counts.judged,
            failures: counts.failures,
            seconds: 0.0,
            fscks: counts.fscks,
            thorough: counts.thorough,
            recovery_cuts: counts.recovery_cuts,
            second_recovery_cuts: counts.second_recovery_cuts,
            shares: counts.shares,
            share_states: counts.share_states,
            torn_states: counts.torn_states,
            line_states: counts.line_states,
            cases_done: done,
            cases,
            passes: progress.pass,
            findings: progress.findings.clone(),
            records: std::mem::take(&mut *self.records.lock()),
        };
        (outcome, progress)
    }
}
