//! StetFS beside other file systems: each works on a mount over a recorded device, and recovers its
//! own crash states: StetFS by its library, the others by the kernel's mount.
//!
//! Needs root, FUSE and loop devices, and the file systems' `mkfs`.

pub mod classify;
pub mod cut;
pub mod cut_command;
pub mod foreign;
mod mapped;
pub mod posix;
pub mod programs;
pub mod served;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::{DataMode, MemDevice, Preset};
use stetfs_block::{Log, Replay};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::mount::KernelMount;
use stetfs_testkit::stet::StetMount;
use stetfs_testkit::{Image, Mkfs, Scratch, cmd};

use self::classify::classify;
use self::posix::PosixSession;
use self::programs::{Program, Step, program};
use self::served::Served;
use crate::explore::image_hash;
use crate::judge;
use crate::marks::{ACKED, BEGUN};
use crate::setup::JournalSpec;
use crate::state::{StateId, Uncertain, first_pass, points};
use crate::volume::{DIRS, fsck};
use crate::workload::{Progress, Script, cases};

/// A file system under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// `stetfs:PRESET`.
    Stetfs(Preset),
    /// `ext4:OPTIONS`, `xfs`, `btrfs`: the kernel's.
    Kernel {
        /// The type.
        fstype: String,
        /// Mount options, may be empty.
        options: String,
    },
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Stetfs(preset) => write!(f, "stetfs:{preset}"),
            System::Kernel { fstype, options } if options.is_empty() => f.write_str(fstype),
            System::Kernel { fstype, options } => write!(f, "{fstype}:{options}"),
        }
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "stetfs" => Ok(System::Stetfs(if options.is_empty() {
                Preset::default()
            } else {
                options.parse().map_err(|e| format!("{e}"))?
            })),
            "ext4" | "xfs" | "btrfs" => Ok(System::Kernel {
                fstype: name.into(),
                options: options.into(),
            }),
            _ => Err(format!(
                "there is no file system {name:?} here: give stetfs:PRESET, ext4[:OPTIONS], xfs or btrfs"
            )),
        }
    }
}

impl System {
    /// A fresh volume.
    fn make(&self) -> Result<MemDevice> {
        let image = match self {
            System::Kernel { fstype, .. } if fstype != "ext4" => {
                let mib = if fstype == "xfs" { 300 } else { 128 };
                let image = Image::sparse(mib << 20)?;
                let mut mkfs = Command::new(format!("mkfs.{fstype}"));
                cmd::run(mkfs.args(["-q", "-f"]).arg(image.path()))
                    .with_context(|| format!("is {fstype}progs (or {fstype}-progs) installed?"))?;
                image
            }
            _ => Image::make(32 << 20, &Mkfs::blocks(4096).journal_mib(4))?,
        };
        Ok(MemDevice::load(image.path())?)
    }

    fn is_ext4(&self) -> bool {
        matches!(self, System::Stetfs(_))
            || matches!(self, System::Kernel { fstype, .. } if fstype == "ext4")
    }

    /// The tree of a crashed volume, and the volume after its recovery.
    fn recover(&self, crashed: &MemDevice) -> Result<(crate::tree::Seen, MemDevice), String> {
        match self {
            System::Stetfs(preset) => {
                let options = JournalSpec::of(*preset).options;
                let device = Arc::new(crashed.fork());
                let fs = crate::volume::open(&device, &options)
                    .map_err(|e| format!("cannot be opened: {e}"))?;
                let seen = crate::tree::Seen::capture(&fs)?;
                fs.unmount().map_err(|e| e.to_string())?;
                judge::gone(fs).map_err(|e| e.to_string())?;
                Ok((seen, device.fork()))
            }
            System::Kernel { fstype, options } => {
                let said = |e: anyhow::Error| format!("{e:#}");
                let scratch = Scratch::new("state").map_err(said)?;
                let path = scratch.path().join("image");
                crashed.save(&path).map_err(|e| e.to_string())?;
                let device = LoopDev::attach(&path, LoopOptions::default()).map_err(said)?;
                let mut options = options.clone();
                if fstype == "xfs" {
                    // Several images of one volume are looked at at once.
                    options.push_str(if options.is_empty() {
                        "nouuid"
                    } else {
                        ",nouuid"
                    });
                }
                let mount = KernelMount::new(device, fstype, &options).map_err(|e| {
                    let why = fsck(crashed).err().filter(|_| fstype == "ext4");
                    let why = why.map_or(String::new(), |w| format!("; e2fsck: {w}"));
                    format!("cannot be mounted: {e:#}{why}")
                })?;
                let seen = posix::capture(mount.path());
                mount.umount().map_err(said)?;
                let after = MemDevice::load(&path).map_err(|e| e.to_string())?;
                Ok((seen?, after))
            }
        }
    }

    /// How many states may be recovered at once: btrfs knows its volumes by number, and must not
    /// meet two of the same.
    fn threads(&self) -> usize {
        match self {
            System::Kernel { fstype, .. } if fstype == "btrfs" => 1,
            _ => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What is done on the mount.
enum Task {
    Script(Box<Script>),
    Program(Program),
}

impl Task {
    fn of(name: &str, seed: u64) -> Result<Task> {
        if let Some(program) = program(name) {
            return Ok(Task::Program(program));
        }
        let mut all = cases(name, seed)?;
        ensure!(
            all.len() == 1 && all[0].scripts.len() == 1,
            "{name} has several cases or threads: give one script, or a program"
        );
        let ops = all.swap_remove(0).scripts.swap_remove(0);
        // What is put together from the model does not depend on the preset here.
        Ok(Task::Script(Box::new(Script::of(
            ops,
            4096,
            DataMode::Journal,
        ))))
    }

    fn run(&self, dir: &Path, mark: &mut dyn FnMut(Step)) -> Result<()> {
        match self {
            Task::Program(program) => {
                (program.run)(dir, mark).with_context(|| format!("running {}", program.name))
            }
            Task::Script(script) => {
                let mut session = PosixSession::new(dir);
                for (i, op) in script.ops.iter().enumerate() {
                    mark(Step::Begun(i + 1));
                    session
                        .run(op)
                        .with_context(|| format!("operation {}, {op}", i + 1))?;
                    mark(Step::Acked(i + 1));
                }
                Ok(())
            }
        }
    }
}

/// A volume, mounted over a recorded device; `binary` is the stetfs program.
enum Mounted {
    Kernel(KernelMount),
    Stetfs(StetMount),
}

impl Mounted {
    fn new(system: &System, device: &Path, binary: &Path) -> Result<Mounted> {
        Ok(match system {
            System::Kernel { fstype, options } => {
                let device = LoopDev::attach(device, LoopOptions::default())?;
                Mounted::Kernel(KernelMount::new(device, fstype, options)?)
            }
            System::Stetfs(preset) => Mounted::Stetfs(StetMount::new(
                binary,
                device,
                &format!("journal={preset}"),
                Some(Duration::from_secs(300)),
            )?),
        })
    }

    fn path(&self) -> PathBuf {
        match self {
            Mounted::Kernel(m) => m.path().into(),
            Mounted::Stetfs(m) => m.path().into(),
        }
    }

    fn umount(self) -> Result<()> {
        match self {
            Mounted::Kernel(m) => m.umount(),
            Mounted::Stetfs(m) => m.umount(),
        }
    }
}

/// Where the work began.
const START: &str = "start";

fn record(system: &System, task: &Task, base: &MemDevice, binary: &Path) -> Result<Log> {
    Served::record(base, |file, device| {
        let mounted = Mounted::new(system, file, binary)?;
        let dir = mounted.path().join(DIRS[0]);
        posix::make_dir(&dir)?;
        posix::sync_fs(&mounted.path())?;
        device.mark(START, 0);
        let result = task.run(&dir, &mut |step| match step {
            Step::Begun(n) => device.mark(BEGUN, n as u64),
            Step::Acked(n) => device.mark(ACKED, n as u64),
        });
        mounted.umount().and(result)
    })
}

/// What came of one file system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The file system.
    pub system: String,
    /// The workload.
    pub workload: String,
    /// Events of the record.
    pub events: usize,
    /// States tried.
    pub states: usize,
    /// Different images among them, each recovered.
    pub distinct: usize,
    /// The volume could not be mounted.
    pub unmountable: usize,
    /// What was synced, or what a program was told, is not there.
    pub lost: usize,
    /// Names of no single moment.
    pub names: usize,
    /// Content that never was.
    pub versions: usize,
    /// Images that e2fsck looked at, and found something in.
    pub fscks: (usize, usize),
    /// Time.
    pub seconds: f64,
    /// The first of each kind.
    pub examples: Vec<String>,
}

/// How much is tried.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Limits {
    /// Different images of each.
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub states: usize,
    /// How long to try each.
    #[arg(long, value_name = "N", default_value_t = 120.0)]
    pub seconds: f64,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The stetfs program that mounts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Binary {
    /// The stetfs program to mount with [default: this one].
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "/proc/self/exe",
        hide_default_value = true
    )]
    stetfs: PathBuf,
}

impl Binary {
    /// Its path, also for a child, which would take /proc/self for itself.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        self.stetfs.canonicalize().context("the stetfs program")
    }
}

/// Records `workload` on a file system and judges its crash states.
///
/// # Errors
/// Not root, something is not installed, or the workload failed.
pub fn compare_one(system: &System, workload: &str, limits: Limits, binary: &Path) -> Result<Row> {
    let begin = Instant::now();
    let task = Task::of(workload, limits.seed)?;
    let base = system.make()?;
    let log = record(system, &task, &base, binary)
        .with_context(|| format!("recording {workload} on {system}"))?;
    let mut row = Row {
        system: system.to_string(),
        workload: workload.into(),
        events: log.len(),
        ..Row::default()
    };
    let candidates = candidates(&base, &log, limits.seed);
    row.states = candidates.len();
    let chosen = choose(&base, &log, candidates, limits);
    let row = Mutex::new(row);
    let crashes = Crashes {
        base: &base,
        log: &log,
        chosen,
    };
    crashes.each(system.threads(), begin, limits, &|i, state, image, told| {
        let e2fsck = system.is_ext4() && i.is_multiple_of(10);
        look(system, &task, state, image, told, e2fsck, &row)
    })?;
    let mut row = row.into_inner();
    row.seconds = begin.elapsed().as_secs_f64();
    Ok(row)
}

/// Crashes that are to be looked at.
struct Crashes<'a> {
    base: &'a MemDevice,
    log: &'a Log,
    chosen: Vec<StateId>,
}

/// Gets the number of a crash, the crash, its image and what the workload had been told.
type Looked<'a> = dyn Fn(usize, &StateId, &MemDevice, Progress) -> Result<(), String> + Sync + 'a;

impl Crashes<'_> {
    /// Looks at each, as long as there is time since `begin`.
    ///
    /// # Errors
    /// The first of `look`.
    fn each(
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

/// Recovers a state and puts what is wrong with it into the row.
fn look(
    system: &System,
    task: &Task,
    state: &StateId,
    image: &MemDevice,
    told: Progress,
    e2fsck: bool,
    row: &Mutex<Row>,
) -> Result<(), String> {
    let recovered = system.recover(image);
    let (seen, after) = match recovered {
        Ok(ok) => ok,
        Err(why) => {
            let mut row = row.lock();
            row.distinct += 1;
            row.unmountable += 1;
            if row.unmountable == 1 {
                row.examples.push(format!("crash {state}: {why}"));
            }
            return Ok(());
        }
    };
    let unsound = e2fsck.then(|| fsck(&after).err());
    let mut broken = classify::Broken::default();
    match task {
        Task::Script(script) => broken = classify(&seen, DIRS[0], script, told),
        Task::Program(p) => {
            broken.lost = (p.check)(&seen, DIRS[0], (told.begun, told.acked)).err();
        }
    }
    let mut row = row.lock();
    let Row {
        distinct,
        lost,
        names,
        versions,
        fscks,
        examples,
        ..
    } = &mut *row;
    *distinct += 1;
    fscks.0 += usize::from(unsound.is_some());
    let all = [
        (&mut fscks.1, unsound.flatten()),
        (lost, broken.lost),
        (names, broken.names),
        (versions, broken.versions),
    ];
    for (count, why) in all {
        if let Some(why) = why {
            *count += 1;
            if *count == 1 {
                examples.push(format!(
                    "crash {state}, after operation {}: {why}",
                    told.acked
                ));
            }
        }
    }
    Ok(())
}

/// Where the work began; a record without such a mark is all work.
fn start(log: &Log) -> usize {
    let is_start = |e: &stetfs_block::Event| matches!(e, stetfs_block::Event::Mark { label, .. } if label == START);
    log.events.iter().position(is_start).unwrap_or(0)
}

/// All states of a first pass.
fn candidates(base: &MemDevice, log: &Log, seed: u64) -> Vec<StateId> {
    let mut replay = Replay::new(base, log);
    let mut all = Vec::new();
    for (event, why) in points(log, start(log)) {
        replay.advance_to(event);
        all.extend(first_pass(event, why, &Uncertain::at(&replay), seed));
    }
    all
}

/// Well-spread states with different images, in order.
fn choose(base: &MemDevice, log: &Log, mut all: Vec<StateId>, limits: Limits) -> Vec<StateId> {
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
