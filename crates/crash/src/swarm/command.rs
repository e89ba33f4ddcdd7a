//! The command line of `stetfs crash swarm`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;

use super::cover::Cover;
use super::coverage::{Coverage, Covered};
use super::plan::{Fixed, Plan};
use super::pulse::Pulse;
use super::run::{Done, Effort, Found, keep, run};
use super::shrink::shrink;
use super::states::Tried;
use crate::answer::Answer;
use crate::explore::Failure;
use crate::judge::{Finding, Oracle, check_can_mount};

/// Arguments of `crash swarm`.
#[derive(Clone, Debug, Args)]
pub struct SwarmArgs {
    /// Duration, in seconds [default: 60, or until --runs or --pairs is complete].
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Stop after this many runs.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Seed of the first run; each later run has the next number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Values to fix instead of drawing, such as preset=stet.
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',', value_parser = fixed)]
    with: Vec<Fixed>,
    /// Number of crash states to try of each run.
    #[arg(long, value_name = "N", default_value_t = 60)]
    states: u64,
    /// Stop at this many failures.
    #[arg(long, value_name = "N", default_value_t = 1)]
    failures: usize,
    /// Number of runs at a time [default: one for each processor].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Time in seconds after which a step counts as hanging.
    #[arg(long, value_name = "N", default_value_t = 60)]
    patience: u64,
    /// Choose the plans so that all pairs of values meet that can, in few runs. Stops earlier at
    /// --seconds or --runs, if given.
    #[arg(long)]
    pairs: bool,
    /// Mount some of the crash states by the kernel, too, and compare (needs root and loop
    /// devices).
    #[arg(long)]
    kernel: bool,
    /// Do the costly checks for each crash state instead of some: e2fsck, a second recovery, cuts
    /// inside recoveries, and with --kernel the mount by the kernel.
    #[arg(long)]
    every: bool,
    /// Print the pairs of values that never met.
    #[arg(long)]
    coverage: bool,
    /// Print the plans without running them.
    #[arg(long)]
    plans: bool,
    /// Directory for the recordings of failures [default: stetfs-crash, created at the first
    /// failure].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the recordings of all mounts, not only those of failures.
    #[arg(long)]
    keep: bool,
    /// Do not search for a simpler plan that still shows a failure.
    #[arg(long)]
    no_shrink: bool,
    /// With --json: file for the JSON, instead of standard output.
    #[arg(value_name = "FILE")]
    json_file: Option<PathBuf>,
}

fn fixed(text: &str) -> Result<Fixed, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not of the form NAME=VALUE"))?;
    Ok((name.into(), value.into()))
}

/// A run that broke a promise.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// Seed of the run.
    pub seed: u64,
    /// The plan that was drawn.
    pub plan: String,
    /// The broken promise.
    pub finding: Finding,
    /// The crash, if the failure needs one.
    pub crash: Option<Failure>,
    /// The simplest plan found that still shows the failure.
    pub plainer: Option<String>,
    /// The command that repeats the run.
    pub command: String,
}

/// The sums over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Swarmed {
    /// Number of runs.
    pub runs: u64,
    /// Time in seconds.
    pub seconds: f64,
    /// Number of operations, and of those that were refused.
    pub operations: (u64, u64),
    /// Counts of crash states and checks.
    #[serde(flatten)]
    pub tried: Tried,
    /// Counts of pairs that met.
    pub coverage: Covered,
    /// The broken promises.
    pub broken: Vec<Broken>,
}

/// The sums so far.
#[derive(Default)]
struct Sums {
    runs: u64,
    operations: (u64, u64),
    tried: Tried,
    coverage: Coverage,
    broken: Vec<Broken>,
}

impl Sums {
    /// Adds a run. Returns its broken promise, if there is one.
    fn add(&mut self, done: Done) -> Option<Found> {
        self.runs += 1;
        self.coverage.add(&done.plan, done.tried.states);
        self.tried.add(&done.tried);
        self.operations.0 += done.operations.0;
        self.operations.1 += done.operations.1;
        done.found
    }

    /// Whether there are enough failures, or a run hangs: its threads continue, and slow down all
    /// later runs.
    fn is_enough(&self, failures: usize) -> bool {
        let hangs = |broken: &Broken| broken.finding.oracle == Oracle::Hang;
        self.broken.len() >= failures.max(1) || self.broken.iter().any(hangs)
    }
}

/// Time to shrink one failure.
const SHRINK: Duration = Duration::from_secs(60);
/// Number of tries for each plan while shrinking, because threads are scheduled differently each
/// time.
const AGAIN: usize = 2;

impl SwarmArgs {
    /// Runs the swarm.
    ///
    /// # Errors
    /// The arguments are wrong, or a volume cannot be made.
    pub fn run(&self) -> Result<Answer> {
        ensure!(
            self.seconds.is_none_or(|s| s > 0.0),
            "--seconds must be above 0"
        );
        if self.plans {
            return self.plans();
        }
        if self.kernel {
            check_can_mount().context("--kernel")?;
        }
        let swarmed = self.swarm()?;
        let mut answer = Answer::new(self.text(&swarmed), &swarmed)?;
        answer.broken = !swarmed.broken.is_empty();
        answer.json_file.clone_from(&self.json_file);
        Ok(answer)
    }

    fn plans(&self) -> Result<Answer> {
        let seeds = self.seed..self.seed.saturating_add(self.runs.unwrap_or(1));
        let plans: Result<Vec<String>> = seeds
            .map(|seed| Ok(Plan::draw(seed, &self.with)?.to_string()))
            .collect();
        let plans = plans?;
        Answer::new(format!("{}\n", plans.join("\n")), &plans)
    }

    /// Runs plans until one of the bounds is reached.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub fn swarm(&self) -> Result<Swarmed> {
        let start = Instant::now();
        let seconds = match (self.seconds, self.runs) {
            (None, None) if !self.pairs => Some(60.0),
            (seconds, _) => seconds,
        };
        let deadline = seconds.map(|s| start + Duration::from_secs_f64(s.min(1e8)));
        let cpus = || thread::available_parallelism().map_or(1, |n| n.get());
        let jobs = self.jobs.unwrap_or_else(cpus).max(1);
        let sums = Mutex::new(Sums::default());
        let next = AtomicU64::new(0);
        let cover = self.pairs.then(|| Mutex::new(Cover::new(&self.with)));
        let job = || -> Result<()> {
            while deadline.is_none_or(|d| Instant::now() < d)
                && !sums.lock().is_enough(self.failures)
            {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if self.runs.is_some_and(|most| n >= most) {
                    break;
                }
                let seed = self.seed.wrapping_add(n);
                let plan = match &cover {
                    None => Some(Plan::draw(seed, &self.with)?),
                    Some(cover) => cover.lock().next(seed),
                };
                let Some(plan) = plan else { break };
                let done = self.try_plan(&plan).with_context(|| plan.to_string())?;
                if let Some(cover) = &cover {
                    cover.lock().done(&plan, &done.plan);
                }
                let found = sums.lock().add(done);
                if let Some(found) = found {
                    self.found(&plan, found, &sums)?;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let all: Vec<_> = (0..jobs).map(|_| scope.spawn(job)).collect();
            let mut joined = all.into_iter().map(|job| job.join());
            joined.try_for_each(|done| done.map_err(|_| anyhow!("a job panicked"))?)
        })?;
        let mut sums = sums.into_inner();
        sums.broken.sort_by_key(|broken| broken.seed);
        Ok(Swarmed {
            runs: sums.runs,
            seconds: start.elapsed().as_secs_f64(),
            operations: sums.operations,
            tried: sums.tried,
            coverage: sums.coverage.covered(self.coverage),
            broken: sums.broken,
        })
    }

    /// Shrinks and reports a failure, unless there are enough already.
    fn found(&self, plan: &Plan, found: Found, sums: &Mutex<Sums>) -> Result<()> {
        // One failure at a time: a shrinking that has the processors for itself ends soon.
        let mut sums = sums.lock();
        if !sums.is_enough(self.failures) {
            let broken = self.told(plan, found)?;
            sums.broken.push(broken);
        }
        Ok(())
    }

    /// Runs a plan in a thread of its own, which is abandoned if it hangs.
    fn try_plan(&self, plan: &Plan) -> Result<Done> {
        let pulse = Arc::new(Pulse::default());
        let (answer, wait) = mpsc::channel();
        let effort = Effort {
            states: self.states,
            kernel: self.kernel,
            every: self.every,
            keep: self.keep.then(|| self.out().to_owned()),
        };
        let (of_thread, of_plan) = (Arc::clone(&pulse), plan.clone());
        let thread = thread::Builder::new().name("swarm".into());
        let spawned = thread.spawn(move || drop(answer.send(run(&of_plan, &effort, &of_thread))));
        spawned.context("a thread for a run")?;
        let patience = Duration::from_secs(self.patience.max(1));
        loop {
            match wait.recv_timeout(Duration::from_millis(100)) {
                Ok(done) => return done,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!("the run panicked"));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if let Some(what) = pulse.hanging(patience) {
                return Ok(Done {
                    found: Some(Found {
                        finding: Oracle::Hang.says(what),
                        crash: None,
                    }),
                    ..Done::of(plan)
                });
            }
        }
    }

    fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new("stetfs-crash"))
    }

    /// Saves the recording of a failure, and searches for a simpler plan.
    fn told(&self, plan: &Plan, found: Found) -> Result<Broken> {
        let oracle = found.finding.oracle;
        let crash = found.crash.as_ref().map(|crash| {
            let (recording, state) = &**crash;
            let mut failure = Failure::describe(recording, state, found.finding.clone());
            let out = self.out();
            let path = keep(recording, out)?;
            failure.record = Some(path.display().to_string());
            Ok::<_, anyhow::Error>(failure)
        });
        let crash = crash.transpose()?;
        let mut shows = |less: &Plan| {
            (0..AGAIN).any(|_| {
                let done = self.try_plan(less).ok();
                let found = done.and_then(|done| done.found);
                found.is_some_and(|found| found.finding.oracle == oracle)
            })
        };
        let is_kept = self.no_shrink || oracle == Oracle::Hang;
        let plainer = match is_kept {
            true => None,
            false => Some(shrink(plan, Instant::now() + SHRINK, &mut shows)),
        };
        let small = plainer.as_ref().unwrap_or(plan);
        let mut command = format!(
            "stetfs crash swarm --seed {} --runs 1 --states {}",
            plan.seed, self.states
        );
        if self.kernel {
            command.push_str(" --kernel");
        }
        if self.every {
            command.push_str(" --every");
        }
        let with: Vec<String> = small
            .fixed()
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        if !with.is_empty() {
            command.push_str(&format!(" --with {}", with.join(",")));
        }
        Ok(Broken {
            seed: plan.seed,
            plan: plan.to_string(),
            finding: found.finding,
            crash,
            plainer: plainer.map(|plan| plan.to_string()),
            command,
        })
    }

    fn text(&self, swarmed: &Swarmed) -> String {
        let Swarmed {
            tried, coverage, ..
        } = swarmed;
        let mut text = format!(
            "{} runs from seed {}, {} operations, {} of them refused, in {:.1} s\n\
             {} crash states ({:.0} a second), {} crashes inside recoveries, {} images checked by e2fsck\n\
             {} of {} pairs of values met, {} with crash states\n",
            swarmed.runs,
            self.seed,
            swarmed.operations.0,
            swarmed.operations.1,
            swarmed.seconds,
            tried.states,
            tried.states as f64 / swarmed.seconds.max(1e-3),
            tried.cuts,
            tried.fscks,
            coverage.met,
            coverage.pairs,
            coverage.judged,
        );
        if self.kernel {
            text.push_str(&format!("{} images mounted by the kernel\n", tried.mounted));
        }
        if self.coverage {
            text.push_str("never met, though they can:\n");
            coverage
                .never
                .iter()
                .for_each(|pair| text.push_str(&format!("  {pair}\n")));
        }
        match swarmed.broken.len() {
            0 => text.push_str("no promise was broken\n"),
            n => text.push_str(&format!("{n} RUNS BROKE A PROMISE\n")),
        }
        for broken in &swarmed.broken {
            text.push_str(&format!("\n{}\n", broken.plan));
            match &broken.crash {
                Some(crash) => text.push_str(&crash.text()),
                None => text.push_str(&format!("  {}\n", broken.finding)),
            }
            if let Some(plainer) = &broken.plainer {
                text.push_str(&format!("  plainer: {plainer}\n"));
            }
            text.push_str(&format!("  again: {}\n", broken.command));
        }
        text
    }
}
