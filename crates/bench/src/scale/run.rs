//! The runs of `stetfs bench scale`: each in a fresh volume in memory, in a simulation or, to
//! validate it, on processors of this machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stetfs::low::{BlockDevice, Composition, Fs, FsOptions, MemDevice, RegionSource};
use stetfs_flash::{Model, Timed};
use stetfs_nvm::MemRegion;
use stetfs_sync::simulated::{self, Costs, Outcome, Settings, Waited, control};
use stetfs_testkit::{Image, Mkfs};

use super::args::{Load, ScaleArgs};
use super::report::{Compared, Row, ScaleReport, WaitedFor};
use crate::compare::{Place, Sizes, Work, drive};
use crate::interrupt;

/// Size of the volume, MiB: an inode for each 4 KiB.
const VOLUME_MIB: u64 = 4096;
/// Its UUID, and the seed of its hashes of names: they decide where directories lie.
const IDENTITY: &str = "5ca1ab1e-0000-4000-8000-000000000046";
/// The time in it, where runs repeat: seconds since 1970.
const EPOCH: u64 = 1_893_456_000;
/// Size of its journal, MiB.
const JOURNAL_MIB: u32 = 128;
/// Size of the region, for journals that have one, bytes.
const REGION: u64 = 256 << 20;
/// Names that the create loads make at most, in all: fewer than the volume has inodes. A run that
/// made them ends early.
const NAMES: u32 = 400_000;
/// The virtual time in which a volume is prepared at the latest, ns.
const PREPARED: u64 = 600_000_000_000;
/// Nanoseconds by which a thread may be ahead, where work is measured.
const SLACK: u64 = 200;

impl Load {
    fn work(self) -> Work {
        match self {
            Load::Create => Work::Create,
            Load::AppendFsync => Work::Append,
            Load::Overwrite => Work::Write,
            Load::OverwriteFsync => Work::Overwrite,
            Load::Rename => Work::Rename,
            Load::Varmail => Work::Varmail,
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The input of a run.
#[derive(Clone)]
struct Plan {
    fresh: Arc<MemDevice>,
    model: Option<Model>,
    journal: Composition,
    load: Load,
    cores: u32,
    limit: Duration,
    /// Fixed times and generations in the volume, for runs that repeat.
    epoch: Option<u64>,
}

/// The result of a run.
struct Done {
    operations: f64,
    seconds: f64,
    /// The waits meanwhile.
    waits: Vec<Waited>,
    /// Scheduling points until the load ended, and their number of equal runs. What follows is not
    /// repeated exactly: an unmount visits inodes in the order of a hash.
    trace: (u64, u64),
}

impl Plan {
    /// Runs the load in the calling thread's time, virtual or real.
    fn run(self) -> Result<Done> {
        let device: Arc<dyn BlockDevice> = match self.model {
            Some(model) => Arc::new(Timed::new(self.fresh.fork(), model)),
            None => Arc::new(self.fresh.fork()),
        };
        let region = match self.journal.is_in_region() {
            true => RegionSource::Open(Arc::new(MemRegion::new(REGION))),
            false => RegionSource::None,
        };
        let options = FsOptions {
            journal: self.journal,
            region,
            epoch: self.epoch,
            ..FsOptions::default()
        };
        let fs = Fs::open(device, options)?;
        let place = Place::Library(&fs);
        let sizes = Sizes {
            names: NAMES,
            ..Sizes::normal()
        };
        let hands = self.load.work().hands(&place, self.cores, &sizes)?;
        control::take_profile();
        let (operations, seconds) = drive(&place, hands, self.limit)?;
        let (waits, trace) = (control::take_profile(), control::trace());
        fs.unmount()?;
        Ok(Done {
            operations,
            seconds,
            waits,
            trace: trace.unwrap_or_default(),
        })
    }
}

/// All runs, and the validation.
pub(super) fn all(args: &ScaleArgs, journals: &[(String, Composition)]) -> Result<ScaleReport> {
    let image = Image::sparse(VOLUME_MIB << 20)?;
    let mut mkfs = Mkfs::new().journal_mib(JOURNAL_MIB);
    mkfs.args
        .extend(["-i", "4096", "-U", IDENTITY].map(String::from));
    mkfs.extended.push(format!("hash_seed={IDENTITY}"));
    image.mkfs(&mkfs)?;
    let fresh = Arc::new(MemDevice::load(image.path())?);
    let settings = match args.table {
        true => Settings::table(1, args.seed),
        false => Settings {
            seed: args.seed,
            slack: SLACK,
            ..Settings::measured(1, Costs::measured())
        },
    };
    let mut report = ScaleReport {
        about: about(args, &settings),
        rows: Vec::new(),
        validation: Vec::new(),
    };
    for load in &args.loads {
        for (name, journal) in journals {
            let plan = |cores| Plan {
                fresh: fresh.clone(),
                model: args.device,
                journal: journal.clone(),
                load: *load,
                cores,
                limit: Duration::from_millis(args.millis),
                epoch: args.table.then_some(EPOCH),
            };
            let mut first = None;
            for &cores in &args.cores {
                interrupt::check()?;
                let mut row = simulated(plan(cores), settings, name, args.waits)?;
                let base = *first.get_or_insert(row.per_second);
                row.speedup = row.per_second / base.max(f64::MIN_POSITIVE);
                report.rows.push(row);
            }
            if args.validate {
                for cores in [1, 2] {
                    interrupt::check()?;
                    let compared = compared(&plan(cores), settings, name, &report.rows)?;
                    report.validation.push(compared);
                }
            }
        }
    }
    Ok(report)
}

/// The head of the report: the simulation and its costs.
fn about(args: &ScaleArgs, settings: &Settings) -> Vec<String> {
    let costs = &settings.costs;
    let device = args.device.map_or("memory", |model| model.name);
    let work = match args.table {
        true => "nothing but the operations of the table",
        false => "the processor time that it takes here",
    };
    vec![
        format!(
            "Virtual time on simulated cores, {} ms a run; device: {device} (simulated). Work costs \
             {work}.",
            args.millis
        ),
        format!(
            "Costs in ns: line from another core {}, waking {} and {} until the woken runs, sleeps \
             {} late, switch {}; a thread spins {} for a lock.",
            costs.transfer,
            costs.wake,
            costs.wake_latency,
            costs.sleep_late,
            costs.switch,
            costs.spin
        ),
        "Not simulated: caches but for lines of locks and atomics, bandwidth of memory, counts of \
         references, the kernel and FUSE."
            .to_owned(),
    ]
}

/// A run in a simulation.
fn simulated(plan: Plan, settings: Settings, journal: &str, waits: usize) -> Result<Row> {
    let (load, cores) = (plan.load, plan.cores);
    let settings = Settings {
        cores: usize::try_from(cores)?,
        longest: PREPARED + 10 * u64::try_from(plan.limit.as_nanos())?,
        ..settings
    };
    let begin = Instant::now();
    let outcome = simulated::run(settings, move || plan.run());
    let what = || format!("{}, {journal}, {cores} cores", load.name());
    let Outcome { result, .. } = outcome.map_err(|e| anyhow!(e)).with_context(what)?;
    let Done {
        operations,
        seconds,
        waits: profile,
        trace: (steps, trace),
    } = result.with_context(what)?;
    ensure!(operations > 0.0, "{}: no operation ended in time", what());
    let all = seconds * 1e9 * f64::from(cores);
    let waited = profile.into_iter().take(waits).map(|wait| WaitedFor {
        kind: wait.kind.name(),
        site: wait.site,
        thread: wait.thread,
        count: wait.count,
        share: wait.nanos as f64 / all,
    });
    Ok(Row {
        load: load.name(),
        journal: journal.to_owned(),
        cores,
        per_second: operations / seconds,
        speedup: 1.0,
        waits: waited.collect(),
        steps,
        trace,
        host_seconds: begin.elapsed().as_secs_f64(),
    })
}

/// A run on processors of this machine, beside the prediction.
fn compared(plan: &Plan, settings: Settings, journal: &str, rows: &[Row]) -> Result<Compared> {
    let (load, cores) = (plan.load.name(), plan.cores);
    let known = rows
        .iter()
        .find(|row| (&*row.load, &*row.journal, row.cores) == (&*load, journal, cores));
    let predicted = match known {
        Some(row) => row.per_second,
        None => simulated(plan.clone(), settings, journal, 0)?.per_second,
    };
    let held = Processors::hold(cores)?;
    let real = plan.clone();
    // A thread of its own: the calling one has had time in which its processor may have changed.
    let done = std::thread::spawn(move || real.run()).join();
    drop(held);
    let done = done.map_err(|_| anyhow!("the load panicked"))??;
    let measured = done.operations / done.seconds;
    Ok(Compared {
        load,
        journal: journal.to_owned(),
        cores,
        predicted,
        measured,
        error_percent: 100.0 * (predicted / measured - 1.0),
    })
}

/// The process on so many of its processors, until dropped.
struct Processors(CpuSet, CpuSet);

impl Processors {
    fn hold(count: u32) -> Result<Processors> {
        let (own, process) = (sched_getaffinity(None)?, sched_getaffinity(Some(getpid()))?);
        let count = usize::try_from(count)?;
        let mut some = CpuSet::new();
        let allowed = (0..CpuSet::MAX_CPU).filter(|cpu| process.is_set(*cpu));
        allowed.take(count).for_each(|cpu| some.set(cpu));
        let here = usize::try_from(some.count())?;
        ensure!(here == count, "this machine has {here} processors only");
        // Threads that run anywhere take the process's first thread as the measure.
        sched_setaffinity(Some(getpid()), &some)?;
        sched_setaffinity(None, &some)?;
        Ok(Processors(own, process))
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        // On failure the rest of the program runs on fewer processors: slower at worst.
        let _ = sched_setaffinity(None, &self.0);
        let _ = sched_setaffinity(Some(getpid()), &self.1);
    }
}
