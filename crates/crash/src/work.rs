//! Runs of scripts on a volume, each thread with a script and a directory of its own.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::RwLock;
use stetfs::low::{BlockDevice, FsError, FsOptions, Ino, MemDevice};
use stetfs_block::{Fault, FaultInjector, Log};
use stetfs_nvm::{MemRegion, Region, RegionLog};

use crate::judge::gone;
use crate::judge::promise::Promise;
use crate::machine::{Crashed, Machine};
use crate::marks::{ACKED, BEGUN, note, number};
use crate::tree::SeenNode;
use crate::volume::{Base, DIRS};
use crate::workload::feed::{Feed, Lines, Settled};
use crate::workload::op::Op;
use crate::workload::script::{Progress, Script};
use crate::workload::session::Session;

/// Files outside the scripts' directories: inodes with the names that lead to them, without the
/// root.
pub type Rest = BTreeMap<Ino, (String, SeenNode)>;

/// A run: the volume, the options and the scripts.
#[derive(Clone, Debug)]
pub struct Work {
    /// The volume before the run.
    pub base: Base,
    /// Bytes of the region of persistent memory for sync records, new at the start; `None` without
    /// one.
    pub region: Option<u64>,
    /// The options to open the volume with, for the run and for recoveries.
    pub options: FsOptions,
    /// The scripts, one for each thread, each in the directory of its number.
    pub scripts: Vec<Script>,
    /// For each script the number of operations done and durable before the run; the volume is as
    /// they left it.
    pub before: Vec<usize>,
    /// The promise that the volume is held to.
    pub promise: Promise,
    /// Files outside the scripts' directories, as they were before the run; found out at first use.
    pub rest: OnceLock<Rest>,
}

/// The outcome of operations: of each thread, then of the unmount, then of a check of the memory
/// that it leaves in use.
pub(crate) type Ends = Vec<Result<(), String>>;

/// Opens the volume of a machine and runs all feeds, each until its first error, in the directory
/// of its number. `mark` gets (thread, whether an operation begins, its number).
pub(crate) fn drive<D, R, M>(
    machine: &Machine<D, R>,
    options: &FsOptions,
    feeds: &mut [&mut (dyn Feed + Send)],
    mark: M,
) -> Result<Ends, FsError>
where
    D: BlockDevice + 'static,
    R: Region + 'static,
    M: Fn(usize, bool, usize) + Sync,
{
    let fs = machine.open(options)?;
    let gate = RwLock::new(());
    let mut results: Ends = thread::scope(|scope| {
        let threads: Vec<_> = feeds
            .iter_mut()
            .zip(DIRS)
            .enumerate()
            .map(|(i, (feed, dir))| {
                let (fs, mark, gate) = (&fs, &mark, &gate);
                scope.spawn(move || -> Result<(), String> {
                    let session = match Session::new(fs, dir) {
                        Ok(session) => session,
                        Err(e) => return feed.kept_out(&e),
                    };
                    work_off(session, &mut **feed, gate, |begun, n| mark(i, begun, n))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| {
                t.join()
                    .unwrap_or_else(|_| Err("its thread panicked".into()))
            })
            .collect()
    });
    results.push(fs.unmount().map_err(|e| format!("unmount: {e}")));
    results.push(gone(fs).map_err(|e| e.to_string()));
    Ok(results)
}

/// The progress of each script.
pub type Progresses = Vec<Progress>;

impl Work {
    /// The machine before the run.
    pub fn machine(&self) -> Crashed {
        Machine::new(self.base.image.fork(), self.region.map(MemRegion::new))
    }

    /// Runs all scripts on `machine`.
    fn run<D, R, M>(&self, machine: &Machine<D, R>, mark: M) -> Result<Ends, FsError>
    where
        D: BlockDevice + 'static,
        R: Region + 'static,
        M: Fn(usize, bool, usize) + Sync,
    {
        let mut feeds: Vec<Lines<'_>> = self.scripts.iter().map(Lines::of).collect();
        let mut feeds: Vec<_> = feeds
            .iter_mut()
            .map(|lines| lines as &mut (dyn Feed + Send))
            .collect();
        drive(machine, &self.options, &mut feeds, mark)
    }

    /// Runs all scripts without a region and cuts the power after `cut` writes. Gives the device at
    /// the cut, the progress, and whether the run had ended before.
    ///
    /// # Errors
    /// An operation failed while the power was on.
    pub fn cut_after(&self, cut: u64) -> Result<(MemDevice, Progresses, bool)> {
        let machine: Machine<_, MemRegion> =
            Machine::new(FaultInjector::new(self.base.image.fork()), None);
        let device = &machine.device;
        device.power_off_after(cut);
        let counts: Vec<[AtomicUsize; 2]> =
            self.scripts.iter().map(|_| Default::default()).collect();
        let result = self.run(&machine, |thread, begun, n| {
            counts[thread][usize::from(begun)].store(n, Ordering::Release);
        });
        let progress = counts
            .iter()
            .map(|[acked, begun]| Progress {
                acked: acked.load(Ordering::Acquire),
                begun: begun.load(Ordering::Acquire),
            })
            .collect();
        let finished = match &result {
            Ok(all) => all.iter().all(Result::is_ok),
            Err(_) => false,
        };
        ensure!(finished || device.is_off(), "with the power on: {result:?}");
        Ok((
            device.inner().fork(),
            progress,
            finished && !device.is_off(),
        ))
    }

    /// Runs all scripts once and records all requests to device and region. Only flush number
    /// `fail_flush` of the device, counted from 0, fails; each script then ends with its first
    /// error.
    ///
    /// # Errors
    /// The first operation that failed on a sound device, or a volume that was closed without an
    /// error after a flush had failed.
    pub fn record(&self, fail_flush: Option<u64>) -> Result<(Log, RegionLog)> {
        let machine = self.machine().recorded(FaultInjector::new);
        let device = &machine.device;
        if let Some(n) = fail_flush {
            let fault = Fault::fail(stetfs_block::Op::Flush, libc::EIO)
                .after(n)
                .once();
            device.inner().add(fault);
        }
        let results = self.run(&machine, |thread, begun, n| {
            note(device, thread, begun, n);
        });
        let has_failed = device.inner().hits() > 0;
        let results = match results {
            Err(_) if has_failed => return Ok(machine.take_logs()),
            results => results.context("opening the volume to be worked on")?,
        };
        if has_failed {
            // The last two results are those of the unmount and of the check of the memory.
            let closed = results.iter().rev().nth(1);
            ensure!(
                closed.is_some_and(Result::is_err),
                "a volume is closed without an error after a flush of its device had failed"
            );
        } else {
            for result in results {
                result.map_err(|e| anyhow!("the workload fails although the device works: {e}"))?;
            }
        }
        Ok(machine.take_logs())
    }

    /// The progress at an event of the recording.
    pub fn progress_at(&self, log: &Log, event: usize) -> Progresses {
        let done = |n: &usize| Progress {
            begun: *n,
            acked: *n,
        };
        let mut progress: Progresses = self.before.iter().map(done).collect();
        for (label, value) in log.marks(event) {
            let Some(p) = progress.get_mut((value >> 32) as usize) else {
                continue;
            };
            // A recording from a file may hold any number.
            let ops = self.scripts[(value >> 32) as usize].ops.len();
            let n = ((value & 0xffff_ffff) as usize).min(ops);
            match label {
                BEGUN => p.begun = p.begun.max(n),
                ACKED => p.acked = p.acked.max(n),
                _ => {}
            }
        }
        progress
    }

    /// The number of events up to the return of operation `op` of the first thread; 0 if it never
    /// returned.
    pub fn event_after(&self, log: &Log, op: usize) -> usize {
        log.events
            .iter()
            .position(|e| {
                matches!(e, stetfs_block::Event::Mark { label, value }
                    if label == ACKED && *value == number(0, op))
            })
            .map_or(0, |i| i + 1)
    }
}

/// Runs a feed until its first error. During a freeze the other threads wait at the `gate` until
/// the thaw. A thread that ends in a freeze thaws the volume first, so that its files can be
/// closed.
fn work_off(
    mut session: Session,
    feed: &mut dyn Feed,
    gate: &RwLock<()>,
    mark: impl Fn(bool, usize),
) -> Result<(), String> {
    let mut alone = None;
    let result = loop {
        let Some((n, op)) = feed.next(&mut session) else {
            let _beside = alone.is_none().then(|| gate.read());
            break feed.end(&mut session);
        };
        mark(true, n);
        if op == Op::Freeze {
            alone = Some(gate.write());
        }
        let _beside = alone.is_none().then(|| gate.read());
        let (is_thawed, settled) = loop {
            let done = session.run_partly(&op);
            let is_thawed = op == Op::Thaw && done.is_ok();
            match feed.settle(&mut session, &op, done) {
                Ok(Settled::Again) => {}
                settled => break (is_thawed, settled),
            }
        };
        match settled {
            Ok(Settled::Over) => break feed.end(&mut session),
            Ok(_) => mark(false, n),
            Err(why) => break Err(format!("operation {n}, {op}: {why}")),
        }
        if is_thawed {
            alone = None;
        }
    };
    // The thaw is refused where a freeze or a thaw failed.
    if alone.is_some() {
        let _ = session.run(&Op::Thaw);
    }
    drop(alone);
    // Closing files may delete them.
    let _beside = gate.read();
    drop(session);
    result
}
