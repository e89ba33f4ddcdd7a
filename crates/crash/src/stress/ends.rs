//! The ends of a stress round: a kill, failing flushes or writes, power cuts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use stetfs::low::{BlockDevice, FsOptions, MemDevice, RegionFile, Volume, VolumeOptions};
use stetfs_block::{Fault, FaultInjector, Op, Recorder, Volatile};
use stetfs_nvm::{MemRegion, Region};
use stetfs_testkit::Scratch;

use super::blocks::{PER_FILE, Stage};
use super::round::{End, Notes, Round};
use crate::judge::gone;
use crate::machine::{Crashed, Machine};
use crate::marks::{ACKED, BEGUN, number};
use crate::state::{Arrival, InRegion, StateId};
use crate::walk::Walk;
use crate::workload::script::{Progress, Script};

/// Number of cuts tried of one recording.
const CUTS: usize = 6;
/// The line by which the child reports that it works.
const READY: &str = "READY";

/// The result of an end: the machine, the notes about each slot until then, and a name for the
/// moment.
#[derive(Debug)]
pub(super) struct Left {
    /// The machine, not recovered.
    pub(super) crashed: Crashed,
    /// The notes about each slot.
    pub(super) noted: Vec<Progress>,
    /// The name of the moment.
    pub(super) moment: String,
    /// Whether the intended fault happened.
    pub(super) hit: bool,
}

/// Makes the command that runs [`child`] with this argument, in a process of its own.
pub type Reexec<'a> = &'a dyn Fn(&str) -> Result<Command>;

/// Runs a round, and gives the machines that it leaves.
///
/// # Errors
/// The round cannot be run, or an operation failed on a sound device.
pub(super) fn run(
    round: &Round,
    stage: &Stage,
    options: &FsOptions,
    scripts: &[Script],
    reexec: Reexec<'_>,
) -> Result<Vec<Left>> {
    match round.end {
        End::Kill => kill(round, stage, scripts.len(), reexec).map(|left| vec![left]),
        End::Flush | End::Write => fail(round, stage, options, scripts).map(|left| vec![left]),
        End::Cut => cut(round, stage, options, scripts),
    }
}

/// Notes in a file: notes written before a kill stay in the host's page cache.
struct NoteFile(File);

const NOTE: u64 = 4;

impl NoteFile {
    fn make(path: &Path) -> Result<NoteFile> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("opening {}", path.display()))?;
        Ok(NoteFile(file))
    }

    fn read(&self, slots: usize) -> Result<Vec<Progress>> {
        let mut bytes = vec![0; slots * 2 * NOTE as usize];
        let mut at = 0;
        // Slots without a note may lie behind the end of the file.
        while let n @ 1.. = self.0.read_at(&mut bytes[at..], at as u64)? {
            at += n;
        }
        let number = |b: &[u8]| b.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        let each = bytes.chunks_exact(2 * NOTE as usize);
        Ok(each
            .map(|pair| Progress {
                acked: number(&pair[..NOTE as usize]),
                begun: number(&pair[NOTE as usize..]),
            })
            .collect())
    }
}

impl Notes for NoteFile {
    fn note(&self, slot: usize, begun: bool, n: u32) {
        let at = (slot as u64 * 2 + u64::from(begun)) * NOTE;
        if let Err(e) = self.0.write_all_at(&n.to_le_bytes(), at) {
            // A round without its notes proves nothing.
            panic!("the notes cannot be written: {e}");
        }
    }
}

/// Number of the slots: scripts, then blocks.
fn slots(round: &Round) -> usize {
    round.changers + round.files * PER_FILE
}

fn moment(round: &Round) -> Duration {
    let mut rng = fastrand::Rng::with_seed(round.seed);
    Duration::from_micros(rng.u64(round.millis * 50..=round.millis * 1000))
}

/// The task of a child process.
#[derive(Serialize, Deserialize)]
struct Task {
    round: Round,
    image: PathBuf,
    /// The file with the region, if there is one.
    region: Option<PathBuf>,
    notes: PathBuf,
}

/// Works on an image until it is killed.
///
/// # Errors
/// An operation failed.
pub fn child(task: &str) -> Result<()> {
    let task: Task = serde_json::from_str(task).context("what is to be done")?;
    let options = VolumeOptions {
        fs: task.round.options()?,
        nvm: task.region.clone().map(RegionFile::from),
        ..VolumeOptions::default()
    };
    let scripts = task.round.scripts(&options.fs);
    let volume = Volume::open(&task.image, &options)?;
    let notes = NoteFile::make(&task.notes)?;
    println!("\n{READY}");
    std::io::stdout().flush()?;
    let worked = task
        .round
        .work(volume.fs(), &scripts, &notes, &AtomicBool::new(false));
    worked.map_err(|e| anyhow!(e))
}

/// A child process that is killed when its owner is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill(round: &Round, stage: &Stage, scripts: usize, reexec: Reexec<'_>) -> Result<Left> {
    let scratch = Scratch::in_memory("stress")?;
    let task = Task {
        round: round.clone(),
        image: scratch.path().join("image"),
        region: round.region.map(|_| scratch.path().join("region")),
        notes: scratch.path().join("notes"),
    };
    stage.base.image.save(&task.image)?;
    if let (Some(path), Some(bytes)) = (&task.region, round.region) {
        File::create(path)?.set_len(bytes)?;
    }
    let notes = NoteFile::make(&task.notes)?;
    let mut command = reexec(&serde_json::to_string(&task)?)?;
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Running(command.spawn().context("starting the working process")?);
    let said = child.0.stdout.take().context("its output")?;
    let ready = BufReader::new(said)
        .lines()
        .map_while(Result::ok)
        .any(|line| line == READY);
    if ready {
        thread::sleep(moment(round));
    }
    if !ready || child.0.try_wait()?.is_some() {
        let mut why = String::new();
        if let Some(mut told) = child.0.stderr.take() {
            told.read_to_string(&mut why)?;
        }
        bail!("the working process ended by itself: {why}");
    }
    drop(child);
    let region = task.region.map(std::fs::read).transpose()?;
    let region = region.map(|bytes| MemRegion::from_bytes(&bytes));
    Ok(Left {
        crashed: Machine::new(MemDevice::load(&task.image)?, region),
        noted: notes.read(scripts + round.files * PER_FILE)?,
        moment: "after the kill".into(),
        hit: true,
    })
}

/// Works on a machine for the time of a round; `fault` is called at a random moment.
fn on_machine<D: BlockDevice + 'static, R: Region + 'static, N: Notes>(
    round: &Round,
    machine: &Machine<D, R>,
    options: &FsOptions,
    scripts: &[Script],
    notes: &N,
    fault: &dyn Fn(),
) -> Result<Result<(), String>> {
    let fs = machine.open(options)?;
    let stop = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        let work = scope.spawn(|| round.work(&fs, scripts, notes, &stop));
        thread::sleep(moment(round));
        fault();
        // The threads continue for a moment after the fault.
        thread::sleep(Duration::from_millis(round.millis / 4));
        stop.store(true, Ordering::Relaxed);
        work.join().unwrap_or_else(|_| Err("a panic".into()))
    });
    gone(fs).map_err(|e| anyhow!(e.to_string()))?;
    Ok(worked)
}

/// Bytes that a device with a small cache takes before it flushes by itself.
const SMALL_CACHE: u64 = 4 << 10;

/// The duration of a flush.
fn delay(round: &Round) -> Duration {
    Duration::from_micros(fastrand::Rng::with_seed(!round.seed).u64(0..500))
}

fn fail(round: &Round, stage: &Stage, options: &FsOptions, scripts: &[Script]) -> Result<Left> {
    let scratch = Scratch::in_memory("stress")?;
    let notes = NoteFile::make(&scratch.path().join("notes"))?;
    let disk = Volatile::new(stage.base.image.fork(), delay(round));
    // Half of the devices retry for a while, and other flushes succeed meanwhile; the other half
    // has a small cache, and flushes inside writes.
    let disk = match round.seed.is_multiple_of(2) {
        true => disk.failing_for(Duration::from_millis(round.millis / 10)),
        false => disk.with_room(SMALL_CACHE),
    };
    let machine = Machine::new(FaultInjector::new(disk), round.region.map(MemRegion::new));
    let device = &machine.device;
    let fault = || match round.end {
        End::Write => {
            device.add(Fault::fail(Op::Write, libc::EIO).times(round.failing));
        }
        _ => device.inner().fail_flushes(round.failing),
    };
    let worked = on_machine(round, &machine, options, scripts, &notes, &fault)?;
    let hit = device.hits() + device.inner().drops() > 0;
    if let (Err(e), false) = (worked, hit) {
        bail!("an operation failed although the device works: {e}");
    }
    let all = round.end == End::Write && round.seed.is_multiple_of(2);
    let image = match all {
        true => device.inner().now(),
        false => device.inner().kept(),
    };
    let region = machine.region.as_ref().map(|region| region.fork());
    Ok(Left {
        crashed: Machine::new(image, region),
        noted: notes.read(slots(round))?,
        moment: "after the device failed".into(),
        hit,
    })
}

impl Notes for Arc<Recorder<Volatile>> {
    fn note(&self, slot: usize, begun: bool, n: u32) {
        let label = if begun { BEGUN } else { ACKED };
        self.mark(label, number(slot, n as usize));
    }
}

fn cut(round: &Round, stage: &Stage, options: &FsOptions, scripts: &[Script]) -> Result<Vec<Left>> {
    let base = Machine::new(stage.base.image.fork(), round.region.map(MemRegion::new));
    let machine = base.recorded(|image| Volatile::new(image, delay(round)));
    let worked = on_machine(round, &machine, options, scripts, &machine.device, &|| {})?;
    worked.map_err(|e| anyhow!("an operation failed although the device works: {e}"))?;
    let (log, region) = machine.take_logs();
    let mut rng = fastrand::Rng::with_seed(round.seed);
    let mut events: Vec<usize> = (0..CUTS).map(|_| rng.usize(0..=log.len())).collect();
    events.sort_unstable();
    let mut walk = Walk::new(&base, &log, &region);
    let mut left = Vec::new();
    for event in events {
        let arrival = match rng.u8(0..4) {
            0 => Arrival::None,
            1 => Arrival::All,
            _ => Arrival::Drawn(rng.u64(0..1000)),
        };
        let at = region.position_at(event as u64)..=region.position_at(event as u64 + 1);
        let region = round.region.map(|_| InRegion {
            event: rng.usize(at),
            state: rng.u64(..1000),
        });
        let state = StateId {
            event,
            arrival,
            region,
        };
        let mut noted = vec![Progress::default(); slots(round)];
        for (label, value) in log.marks(event) {
            let Some(p) = noted.get_mut((value >> 32) as usize) else {
                continue;
            };
            let n = (value & 0xffff_ffff) as usize;
            match label {
                BEGUN => p.begun = n,
                _ => p.acked = n,
            }
        }
        left.push(Left {
            crashed: walk.make(&state),
            noted,
            moment: format!("cut at {state}"),
            hit: true,
        });
    }
    Ok(left)
}
