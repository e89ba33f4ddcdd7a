//! `stetfs crash cut`: records what any program does on a mount, draws crash states, and has a
//! command judge each.
//!
//! Each line that the program prints stands for an acknowledgement or a promise, and the judges of
//! later crashes get it. A line is marked in the recording when it is read, which is after it was
//! printed. So no crash gets a line too many.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::{BlockError, MemDevice, NbdAddress};
use stetfs_block::{Event, Log, Recorder, Replay};
use stetfs_testkit::image::e2fsck;
use stetfs_testkit::stet::StetMount;
use stetfs_testkit::{Scratch, cmd};

use super::crashes::{Crashes, Limits, start};
use super::recorded::START;
use super::served::Served;
use crate::marks::ACKED;
use crate::state::{Arrival, KINDS, StateId, Uncertain, Why, points};

/// The environment variable with the mount point, for all commands.
const DIR: &str = "STETFS_DIR";
/// The environment variable with the file of the lines printed before the crash, for the judge.
const TOLD: &str = "STETFS_TOLD";

/// Number of states that are tried in the order of the recording before the next round through it;
/// so all parts of the recording are tried, however little time there is.
const TURN: usize = 16;
/// One state in this many is cut again, inside its recovery.
const CUT_AGAIN: usize = 4;
/// One image in this many is checked by e2fsck, after the judge.
const FSCK_EACH: usize = 8;
/// Most failures that are described and kept.
const EXAMPLES: usize = 5;

/// A program, its volume and its judge. Commands are run by the shell.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The image of the volume; it is not changed.
    pub volume: PathBuf,
    /// Mount options.
    pub options: String,
    /// A command that runs first, on a mount that is not recorded.
    pub prepare: Option<String>,
    /// The program.
    pub run: String,
    /// The judge: a command that fails if the mount's content is broken.
    pub check: String,
    /// The stetfs program.
    pub binary: PathBuf,
    /// Directory for broken images, as the crash left them.
    pub keep: Option<PathBuf>,
    /// Number of states that are judged at once.
    pub jobs: usize,
    /// Number of broken states to stop at.
    pub failures: usize,
    /// Number of states, time limit and seed.
    pub limits: Limits,
}

/// The result of the search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CutRow {
    /// Mount options.
    pub options: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Writes in the recording.
    pub writes: usize,
    /// Flushes in the recording.
    pub flushes: usize,
    /// Lines that the program printed.
    pub told: usize,
    /// States that were judged.
    pub states: usize,
    /// States among these in which a write arrived in part.
    pub torn: usize,
    /// States among these that were cut again, inside their recovery.
    pub cut_again: usize,
    /// States that the judge rejected, or that could not be mounted.
    pub broken: usize,
    /// Images that e2fsck checked after the judge, and those with errors.
    pub fscks: (usize, usize),
    /// Time in seconds.
    pub seconds: f64,
    /// The first broken states, in words.
    pub examples: Vec<String>,
}

/// The recording of the program, and the lines that it printed.
struct Recorded {
    base: MemDevice,
    log: Log,
    lines: Vec<String>,
}

/// A crash to be judged.
struct Crash<'a> {
    /// Its number.
    nth: usize,
    state: &'a StateId,
    /// Whether a write arrived in part.
    torn: bool,
    /// The lines printed before the crash.
    told: &'a [String],
}

/// The image of a crash, and its name.
struct Left {
    name: String,
    image: MemDevice,
}

impl Cut {
    /// Records the program and judges the crash states.
    ///
    /// # Errors
    /// The process is not root, or the program failed. A verdict of the judge is no error.
    pub fn run(&self) -> Result<CutRow> {
        let begin = Instant::now();
        let Recorded { base, log, lines } = self.record()?;
        let count = |is: fn(&Event) -> bool| log.events.iter().filter(|e| is(e)).count();
        let row = Mutex::new(CutRow {
            options: self.options.clone(),
            seed: self.limits.seed,
            writes: count(|e| matches!(e, Event::Write { .. })),
            flushes: count(|e| matches!(e, Event::Flush { .. })),
            told: lines.len(),
            ..CutRow::default()
        });
        let torn = draw(&base, &log, self.limits.states, self.limits.seed);
        let mut all: Vec<&StateId> = torn.keys().collect();
        all.sort_by_key(|state| (state.event, state.to_string()));
        fastrand::Rng::with_seed(self.limits.seed).shuffle(&mut all);
        let looked = AtomicUsize::new(0);
        let since = Instant::now();
        for turn in all.chunks(TURN) {
            let mut chosen: Vec<StateId> = turn.iter().map(|state| (*state).clone()).collect();
            chosen.sort_by_key(|state| state.event);
            let crashes = Crashes {
                base: &base,
                log: &log,
                chosen,
            };
            crashes.each(self.jobs, since, self.limits, &|_, state, image, told| {
                let nth = looked.fetch_add(1, Ordering::Relaxed);
                let told = lines.get(..told.acked).unwrap_or(&lines);
                let torn = torn.get(state) == Some(&true);
                let crash = Crash {
                    nth,
                    state,
                    torn,
                    told,
                };
                self.look(crash, image, &row).map_err(|e| format!("{e:#}"))
            })?;
        }
        let mut row = row.into_inner();
        row.seconds = begin.elapsed().as_secs_f64();
        Ok(row)
    }

    fn record(&self) -> Result<Recorded> {
        ensure!(
            !NbdAddress::is_meant(&self.volume),
            "{} is the address of an NBD server: the cuts need a copy of an image, so name a file",
            self.volume.display()
        );
        let mut base =
            MemDevice::load(&self.volume).map_err(|e| BlockError::open(&self.volume, e))?;
        // FUSE is checked first, so that no preparation is in vain.
        stetfs_fuse::look_for_fuse()?;
        if let Some(prepare) = &self.prepare {
            let scratch = Scratch::in_memory("prepared")?;
            let image = scratch.path().join("image");
            base.save(&image)?;
            let mount = self.mount(&image)?;
            let done = cmd::run(&mut shell(prepare, mount.path()));
            done.and(mount.umount())?;
            base = MemDevice::load(&image)?;
        }
        let mut lines = Vec::new();
        let log = self.recorded(&base, &mut |dir, device| {
            device.mark(START, 0);
            listen(&mut shell(&self.run, dir), &mut |line| {
                lines.push(line);
                device.mark(ACKED, lines.len() as u64);
            })
        })?;
        Ok(Recorded { base, log, lines })
    }

    fn mount(&self, volume: &Path) -> Result<StetMount> {
        let mount = StetMount::new(&self.binary, volume, &self.options, None)?;
        mount.open_to_others()?;
        Ok(mount)
    }

    /// The log of a mount of `base` while `work` runs on it.
    fn recorded(
        &self,
        base: &MemDevice,
        work: &mut dyn FnMut(&Path, &Recorder<MemDevice>) -> Result<()>,
    ) -> Result<Log> {
        Served::record(base, |file, device| {
            let mount = self.mount(file)?;
            let done = work(mount.path(), device);
            done.and(mount.umount())
        })
    }

    /// Judges a state, or one inside its recovery, and adds the result to the row.
    fn look(&self, crash: Crash<'_>, image: &MemDevice, row: &Mutex<CutRow>) -> Result<()> {
        if row.lock().broken >= self.failures {
            return Ok(());
        }
        let Crash {
            nth,
            state,
            torn,
            told,
        } = crash;
        let mut left = Left {
            name: state.to_string(),
            image: image.fork(),
        };
        let again = nth % CUT_AGAIN == CUT_AGAIN - 1;
        let mut verdict = Ok(());
        if again {
            match self.recorded(image, &mut |_, _| Ok(())) {
                Ok(log) => left.cut_again(&log, self.limits.seed ^ state.event as u64),
                Err(e) => verdict = Err(format!("cannot be recovered: {e:#}")),
            }
        }
        let mut checked = None;
        if verdict.is_ok() {
            let fsck = nth.is_multiple_of(FSCK_EACH);
            (verdict, checked) = self.judge(&left.image, told, fsck)?;
        }
        let mut row = row.lock();
        row.states += 1;
        row.torn += usize::from(torn);
        row.cut_again += usize::from(again);
        row.fscks.0 += usize::from(checked.is_some());
        let unsound = checked.and_then(Result::err);
        row.fscks.1 += usize::from(unsound.is_some());
        row.broken += usize::from(verdict.is_err());
        let what = verdict.err().into_iter().chain(unsound);
        let what: Vec<String> = what.collect();
        if !what.is_empty() && row.examples.len() < EXAMPLES {
            let told = told.len();
            row.examples.push(format!(
                "crash {}, after line {told}: {}",
                left.name,
                what.join("; ")
            ));
            left.keep(self.keep.as_deref(), &lines_of(told, &what))?;
        }
        Ok(())
    }

    /// The verdicts of the judge and, with `fsck`, of e2fsck on an image.
    ///
    /// # Errors
    /// The judge leaves the mount in use.
    fn judge(&self, image: &MemDevice, told: &[String], fsck: bool) -> Result<Verdicts> {
        let scratch = Scratch::in_memory("crashed")?;
        let path = scratch.path().join("image");
        image.save(&path)?;
        let list = scratch.path().join("told");
        std::fs::write(
            &list,
            told.iter().map(|l| format!("{l}\n")).collect::<String>(),
        )?;
        scratch.open_to_others()?;
        let mount = match self.mount(&path) {
            Ok(mount) => mount,
            Err(e) => return Ok((Err(format!("cannot be mounted: {e:#}")), None)),
        };
        let out = cmd::output(shell(&self.check, mount.path()).env(TOLD, &list))?;
        mount.umount().context("after the judge")?;
        let said = || Err(format!("{}: {}", out.status, cmd::said(&out).trim()));
        let verdict = if out.status.success() { Ok(()) } else { said() };
        let checked = fsck.then(|| e2fsck(&path, &["-fn"], 0).map_err(|e| format!("{e:#}")));
        Ok((verdict, checked))
    }
}

/// The verdicts of the judge and of e2fsck.
type Verdicts = (Result<(), String>, Option<Result<(), String>>);

fn lines_of(told: usize, what: &[String]) -> String {
    format!("after line {told}:\n{}\n", what.join("\n"))
}

impl Left {
    /// Cuts the power again, inside the recovery that `log` recorded.
    fn cut_again(&mut self, log: &Log, seed: u64) {
        let Some((state, _)) = draw(&self.image, log, 1, seed).into_iter().next() else {
            return;
        };
        self.image = state.make(&mut Replay::new(&self.image, log));
        self.name = format!("{}, and {state} of its recovery", self.name);
    }

    fn keep(&self, dir: Option<&Path>, what: &str) -> Result<()> {
        let Some(dir) = dir else {
            return Ok(());
        };
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let name = self
            .name
            .replace(", and ", "+")
            .replace(" of its recovery", "");
        let path = dir.join(format!("{name}.img"));
        self.image
            .save(&path)
            .and_then(|()| std::fs::write(path.with_extension("txt"), what))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// Draws about `count` crashes of a recording, each with whether a write arrives in part. Half of
/// them lie anywhere; the others are the more likely at a place the more bytes are uncertain there.
fn draw(base: &MemDevice, log: &Log, count: usize, seed: u64) -> HashMap<StateId, bool> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let places = points(log, start(log));
    let mut all = 0;
    let sums: Vec<u64> = uncertain_bytes(log, &places)
        .map(|bytes| {
            all += bytes + 1;
            all
        })
        .collect();
    let mut chosen = Vec::new();
    for _ in 0..count {
        let much = rng.u64(..all.max(1));
        let nth = match rng.bool() {
            true => sums.partition_point(|sum| *sum <= much),
            false => rng.usize(..places.len().max(1)),
        };
        chosen.extend(places.get(nth));
    }
    chosen.sort_unstable();
    let mut replay = Replay::new(base, log);
    let mut drawn = HashMap::new();
    for (event, _) in chosen {
        replay.advance_to(event);
        let uncertain = Uncertain::at(&replay);
        let arrival = match (uncertain.requests, rng.u64(..KINDS + 2)) {
            (0, _) | (_, KINDS) => Arrival::None,
            (_, kind) if kind > KINDS => Arrival::All,
            (_, kind) => Arrival::Drawn(rng.u64(..1 << 20) * KINDS + kind),
        };
        let torn = uncertain.tears(event, &arrival);
        let state = StateId {
            event,
            arrival,
            region: None,
        };
        drawn.insert(state, torn);
    }
    drawn
}

/// For each of these places the bytes written since the last completed flush.
fn uncertain_bytes(log: &Log, places: &[(usize, Why)]) -> impl Iterator<Item = u64> {
    let (mut at, mut bytes, mut flushes) = (0, 0, HashSet::new());
    places.iter().map(move |(event, _)| {
        for passed in log.events.get(at..*event).unwrap_or_default() {
            match passed {
                Event::Write { data, .. } => bytes += data.len() as u64,
                Event::Flush { id } => drop(flushes.insert(*id)),
                Event::Done { id, .. } if flushes.remove(id) => bytes = 0,
                _ => {}
            }
        }
        at = *event;
        bytes
    })
}

fn shell(text: &str, dir: &Path) -> Command {
    let mut command = cmd::tied("sh", libc::SIGTERM);
    command.args(["-c", text]).env(DIR, dir);
    command
}

/// Runs a command to its end, and passes each line that it prints to `line`.
fn listen(command: &mut Command, line: &mut dyn FnMut(String)) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {}", cmd::shown(command)))?;
    let out = child.stdout.take().context("no pipe to the program")?;
    for each in BufReader::new(out).split(b'\n') {
        line(String::from_utf8_lossy(&each?).into_owned());
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "{} failed ({status})",
        cmd::shown(command)
    );
    Ok(())
}
