//! One run: a volume, its mounts with threads at work, and the crashes of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result};
use stetfs::low::{Composition, DataMode, FsError, MemDevice, Preset};
use stetfs_block::FaultInjector;
use stetfs_nvm::MemRegion;

use super::fault::Failing;
use super::feed::{Below, Draws};
use super::plan::Plan;
use super::pulse::Pulse;
use super::states::{self, Asked, Tried};
use super::transport::Transport;
use super::volume;
use crate::judge::promise::Promise;
use crate::judge::{Checks, Finding, Oracle};
use crate::machine::Machine;
use crate::record::Recording;
use crate::setup::{JournalSpec, Shape, work_on};
use crate::state::StateId;
use crate::volume::{Base, Batches};
use crate::work::{Ends, drive};
use crate::workload::feed::Feed;
use crate::workload::{Case, Script};

/// The failure that a run found.
pub struct Found {
    /// The broken promise.
    pub finding: Finding,
    /// The recording and the crash that show it; `None` if it shows without a crash.
    pub crash: Option<Box<(Recording, StateId)>>,
}

/// The result of a run.
pub struct Done {
    /// The plan, without the options that the volume cannot carry.
    pub plan: Plan,
    /// Counts of crash states and checks.
    pub tried: Tried,
    /// Number of operations, and of those that were refused.
    pub operations: (u64, u64),
    /// Whether its device failed.
    pub has_failed: bool,
    /// The first broken promise.
    pub found: Option<Found>,
}

/// The effort for each run.
#[derive(Clone, Debug, Default)]
pub struct Effort {
    /// Number of crash states, spread over its mounts.
    pub states: u64,
    /// Whether some of them are mounted by the kernel, too.
    pub kernel: bool,
    /// Whether each state gets e2fsck, the kernel and the thorough checks, instead of some.
    pub every: bool,
    /// Directory for the recordings of all mounts, whatever is found.
    pub keep: Option<PathBuf>,
}

/// Saves a recording in a directory, which is created if necessary.
///
/// # Errors
/// It cannot be written.
pub(super) fn keep(recording: &Recording, dir: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let path = dir.join(format!("{}.record", recording.header.workload));
    recording.save(&path)?;
    Ok(path)
}

/// Runs a plan.
///
/// # Errors
/// The volume cannot be made. Broken promises are no errors.
pub fn run(plan: &Plan, effort: &Effort, pulse: &Arc<Pulse>) -> Result<Done> {
    pulse.begins("volume", "making it");
    let mut base = volume::make(plan)?;
    let plan = &carried(plan, &base)?;
    pulse.ends("volume");
    let mut done = Done::of(plan);
    let mounts = plan.number("mounts");
    let threads = plan.number("threads") as usize;
    let mut scripts: Vec<Script> = Vec::new();
    for mount in 0..mounts {
        let journal = journal(plan, mount)?;
        let data = journal.options.journal.data();
        let block = plan.number("block");
        scripts = match mount {
            0 => (0..threads).map(|_| Script::begin(block, data)).collect(),
            _ => remounted(scripts, data),
        };
        let mut mounted = Mounted {
            plan,
            journal,
            shape: shape(plan)?,
            mount,
            pulse,
            has_failed: false,
        };
        match mounted.work(&base, scripts) {
            Ok((recording, left)) => {
                done.count(&recording);
                if let Some(dir) = &effort.keep {
                    keep(&recording, dir)?;
                }
                scripts = recording.work.scripts.clone();
                let states = effort.states.div_ceil(mounts);
                let asked = Asked {
                    states,
                    kernel: effort.kernel,
                    every: effort.every,
                };
                let tried = states::search(&recording, plan, asked, pulse);
                done.tried.add(&tried.tried);
                done.has_failed |= mounted.has_failed;
                done.found = tried.found.map(|(state, finding)| Found {
                    finding,
                    crash: Some(Box::new((recording, state))),
                });
                base.image = Arc::new(left);
            }
            Err(finding) => {
                done.found = Some(Found {
                    finding,
                    crash: None,
                });
                return Ok(done);
            }
        }
        if done.found.is_some() {
            return Ok(done);
        }
    }
    Ok(done)
}

/// A plan without the options that its volume cannot carry, such as many lanes in a small log.
///
/// # Errors
/// The journal's options contradict each other.
fn carried(plan: &Plan, base: &Base) -> Result<Plan> {
    let mut plan = plan.clone();
    loop {
        let region = shape(&plan)?.region.map(MemRegion::new);
        let machine = Machine::new(base.image.fork(), region);
        let less = match machine.open(&journal(&plan, 0)?.options) {
            Err(_) => plan.with_less(),
            Ok(_) => None,
        };
        match less {
            Some(less) => plan = less,
            None => return Ok(plan),
        }
    }
}

impl Done {
    /// The result of a run of this plan that has not begun.
    pub fn of(plan: &Plan) -> Done {
        Done {
            plan: plan.clone(),
            tried: Tried::default(),
            operations: (0, 0),
            has_failed: false,
            found: None,
        }
    }

    fn count(&mut self, recording: &Recording) {
        let before = recording.work.before.iter();
        for (script, before) in recording.work.scripts.iter().zip(before) {
            let ops = &script.ops[*before..];
            let is_refused =
                |op: &&crate::workload::Op| matches!(op, crate::workload::Op::Refused { .. });
            self.operations.0 += ops.len() as u64;
            self.operations.1 += ops.iter().filter(is_refused).count() as u64;
        }
    }
}

fn remounted(scripts: Vec<Script>, data: DataMode) -> Vec<Script> {
    let each = scripts.into_iter().map(|mut script| {
        script.remounted(data);
        script
    });
    each.collect()
}

/// The journal of a mount, with the options for opening the volume; later mounts may have another
/// one.
fn journal(plan: &Plan, mount: u64) -> Result<JournalSpec> {
    let mut text = plan.journal();
    if mount > 0 && plan.is("again", "other") {
        let is_outside = plan.is("log", "outside");
        let fits = |preset: &Preset| !is_outside || Composition::from(*preset).is_jbd2();
        let mut presets = Preset::on_a_device();
        presets.retain(fits);
        let mut rng = fastrand::Rng::with_seed(plan.seed.wrapping_add(mount));
        text = rng.choice(presets).unwrap_or_default().name().into();
    }
    for option in [
        "async_commit",
        "discard",
        "sync",
        "dirsync",
        "lazytime",
        "strictatime",
    ] {
        if plan.is(option, "yes") {
            text.push_str(&format!(",{option}"));
        }
    }
    if plan.is("expire", "soon") {
        text.push_str(",dirty_expire=0");
    }
    for option in ["errors", "data_err"] {
        text.push_str(&format!(",{option}={}", plan.get(option)));
    }
    let (cache, policy) = (plan.get("cache"), plan.get("policy"));
    text.push_str(&format!(",cache={cache},cache_policy={policy}"));
    if !plan.is("canary", "no") {
        text.push_str(&format!(",canary={}", plan.get("canary")));
    }
    text.push_str(",prove");
    text.parse().map_err(Error::msg)
}

fn shape(plan: &Plan) -> Result<Shape> {
    let block = plan.number("block");
    let region = match plan.get("region") {
        "no" => None,
        "small" => Some(64 << 10),
        // The log has space for two lanes.
        _ => Some((1024 * block + (1 << 20)).max(5 << 20)),
    };
    Ok(Shape {
        block: block as u32,
        journal_blocks: volume::log_blocks(plan),
        batches: match plan.get("batches") {
            "atomic" => Batches::Atomic,
            _ => Batches::Torn,
        },
        fua: plan.is("fua", "yes"),
        region,
    })
}

/// One mount of a run.
struct Mounted<'a> {
    plan: &'a Plan,
    journal: JournalSpec,
    shape: Shape,
    mount: u64,
    pulse: &'a Arc<Pulse>,
    /// Whether a fault hit its device.
    has_failed: bool,
}

impl Mounted<'_> {
    /// Has the threads work on a copy of `base`. Gives the recording, and the device after the
    /// volume was closed.
    ///
    /// # Errors
    /// A finding without a crash.
    fn work(
        &mut self,
        base: &Base,
        scripts: Vec<Script>,
    ) -> Result<(Recording, MemDevice), Finding> {
        let said = |e: Error| Oracle::Live.says(format!("{e:#}"));
        let has_use = stetfs::low::check_region(&self.journal.options.journal).is_ok();
        self.shape.region = self.shape.region.filter(|_| has_use);
        let case = Case {
            name: format!("swarm-{}-{}", self.plan.seed, self.mount),
            scripts: vec![Vec::new(); scripts.len()],
            setup: 0,
            fail_flush: None,
        };
        let mut work = work_on(base, &self.journal, self.shape, &case).map_err(said)?;
        work.before = scripts.iter().map(|s| s.ops.len()).collect();
        let machine = work.machine().recorded(FaultInjector::new);
        let is_last = self.mount + 1 == self.plan.number("mounts");
        let fault = Failing::of(self.plan).filter(|_| is_last);
        let way = Transport::of(self.plan, &machine.device, &work.base.image, fault);
        let way = way.map_err(said)?;
        let above = Machine {
            device: Arc::new(Arc::clone(&way.above)),
            region: machine.region.clone(),
        };
        let (injector, has_died) = (Arc::clone(&machine.device), way.has_died());
        let is_hidden = fault.is_some_and(Failing::is_hidden);
        let has_failed = move || !is_hidden && (injector.inner().hits() > 0 || has_died());
        let below = Below {
            has_failed: Arc::new(has_failed.clone()),
            fails_reads: fault.is_some_and(Failing::is_of_reads),
            is_full: fault.is_some_and(Failing::is_full),
            loses: fault.is_some_and(|f| f.loses(self.journal.options.journal.data())),
        };
        let mut feeds: Vec<Draws> = scripts
            .into_iter()
            .enumerate()
            .map(|(i, script)| Draws::new(self.plan, i, script, below.clone(), self.pulse))
            .collect();
        let results = {
            let mut all: Vec<_> = feeds
                .iter_mut()
                .map(|feed| feed as &mut (dyn Feed + Send))
                .collect();
            let device = &machine.device;
            self.pulse.ends("volume");
            drive(&above, &work.options, &mut all, |thread, begun, n| {
                crate::marks::note(device, thread, begun, n)
            })
        };
        self.pulse.ends("volume");
        self.has_failed = has_failed();
        let fault = fault.filter(|_| self.has_failed);
        self.has_failed |= way.forgotten() > 0;
        drop((above, way));
        let is_closed = ended(results, fault)?;
        let (log, region) = machine.take_logs();
        let left = machine.device.inner().inner().fork();
        work.scripts = feeds.into_iter().map(|feed| feed.script).collect();
        let scripts = work.scripts.iter().map(|s| s.ops.clone()).collect();
        let case = Case { scripts, ..case };
        let recording = Recording::of(
            work,
            (log, region),
            &self.journal,
            self.shape,
            &case,
            self.plan.seed,
        );
        self.left(&recording, &left, is_closed)?;
        Ok((recording, left))
    }

    /// Checks the volume after the mount. A volume that was closed has all changes, and e2fsck
    /// finds nothing. One whose closing failed because of its device is judged as after a crash.
    fn left(
        &self,
        recording: &Recording,
        left: &MemDevice,
        is_closed: bool,
    ) -> Result<(), Finding> {
        self.pulse
            .begins("volume", "looking at it when it was closed");
        let mut work = recording.work.clone();
        let progress = work.progress_at(&recording.log, recording.log.len());
        let loses = |script: &Script| script.failure.as_ref().is_some_and(|f| f.loses);
        if is_closed && !work.scripts.iter().any(loses) {
            work.promise = Promise::Everything;
        }
        let checks = Checks {
            fsck: true,
            ..Checks::default()
        };
        // A closed volume needs no region.
        let region = match is_closed {
            true => work.region.map(MemRegion::new),
            false => recording.left_in_region(),
        };
        let result = work.check(&Machine::new(left.fork(), region), &progress, checks);
        self.pulse.ends("volume");
        result.map_err(|e| {
            let how = match is_closed {
                true => "closed without a crash",
                false => "left by a device that failed",
            };
            e.because(format!("{how}{}", met(&recording.work.scripts)))
        })
    }
}

/// The operation at which each thread met the device's failure, in words.
fn met(scripts: &[Script]) -> String {
    let mut text = String::new();
    for (i, script) in scripts.iter().enumerate() {
        let op = script
            .failure
            .as_ref()
            .map(|f| (f.since, script.ops.get(f.since)));
        if let Some((since, Some(op))) = op {
            text.push_str(&format!(
                "; thread {i} met its failure at operation {}, {op}",
                since + 1
            ));
        }
    }
    text
}

/// Whether the volume was closed, by the results of the threads, of the unmount, and of the check
/// of the memory. `fault` is the fault that has hit the device.
///
/// # Errors
/// A result that no fault explains.
fn ended(results: Result<Ends, FsError>, fault: Option<Failing<'_>>) -> Result<bool, Finding> {
    let mut results = match results {
        Ok(results) => results,
        Err(e) if fault.is_some_and(|fault| fault.explains(&e)) => return Ok(false),
        Err(e) => return Err(Oracle::Live.says(format!("cannot be opened: {e}"))),
    };
    let gone = results.pop().unwrap_or(Ok(()));
    let closed = results.pop().unwrap_or(Ok(()));
    for (i, result) in results.into_iter().enumerate() {
        result.map_err(|e| Oracle::Live.says(format!("thread {i}, {e}")))?;
    }
    gone.map_err(|e| Oracle::Live.says(e))?;
    match closed {
        Ok(()) if fault.is_some_and(Failing::ends_all) => {
            Err(Oracle::Live.says("closed without an error after a flush of its device had failed"))
        }
        Ok(()) => Ok(true),
        Err(_) if fault.is_some() => Ok(false),
        Err(e) => Err(Oracle::Live.says(e)),
    }
}
