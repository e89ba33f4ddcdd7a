//! Scripts at work on a volume, and what is left when the power goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stetfs::{BlockDevice, Ctx, Fs, FsError, FsOptions, MemDevice, Preset, SetAttr};
use stetfs_block::{FaultInjector, Log, Recorder};

use super::op::Session;
use super::oracle::{Progress, Script, judge};
use super::seen::{Seen, read};
use super::volume::{Base, DIRS, fsck, open, sums};

/// What is done, on which volume, how.
pub struct Work {
    pub base: Base,
    pub preset: Preset,
    pub options: FsOptions,
    /// One for each thread, in the directory of that number.
    pub scripts: Vec<Script>,
}

/// How far each script has come.
pub type Progresses = Vec<Progress>;

impl Work {
    /// Does it all on `device`, each script until its first error, and unmounts. `mark` is told (thread,
    /// operation begun?, its number). The last result is that of the unmount.
    fn run<D, M>(&self, device: &Arc<D>, mark: M) -> Result<Vec<Result<(), String>>, FsError>
    where
        D: BlockDevice + 'static,
        M: Fn(usize, bool, usize) + Sync,
    {
        let fs = open(device, &self.options)?;
        let mut results: Vec<Result<(), String>> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .scripts
                .iter()
                .enumerate()
                .map(|(i, script)| {
                    let (fs, mark) = (&fs, &mark);
                    scope.spawn(move || -> Result<(), String> {
                        let mut session = Session::new(fs, DIRS[i]).map_err(|e| e.to_string())?;
                        for (n, op) in script.ops.iter().enumerate() {
                            mark(i, true, n + 1);
                            session
                                .run(op)
                                .map_err(|e| format!("operation {}, {op:?}: {e}", n + 1))?;
                            mark(i, false, n + 1);
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        results.push(fs.unmount().map_err(|e| format!("unmount: {e}")));
        gone(fs);
        Ok(results)
    }

    /// Does it with the power cut after `cut` writes. Gives what is on the device then, how far it
    /// came, and whether it was finished before the cut.
    pub fn cut_after(&self, cut: u64) -> (MemDevice, Progresses, bool) {
        let device = Arc::new(FaultInjector::new(self.base.image.fork()));
        device.power_off_after(cut);
        let counts: Vec<[AtomicUsize; 2]> =
            self.scripts.iter().map(|_| Default::default()).collect();
        let result = self.run(&device, |thread, begun, n| {
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
        assert!(finished || device.is_off(), "with the power on: {result:?}");
        (
            device.inner().fork(),
            progress,
            finished && !device.is_off(),
        )
    }

    /// Does it once, recording all writes.
    pub fn record(&self) -> Log {
        let device = Arc::new(Recorder::new(self.base.image.fork()));
        let results = self.run(&device, |thread, begun, n| {
            device.mark(
                if begun { "begun" } else { "acked" },
                (thread as u64) << 32 | n as u64,
            );
        });
        for result in results.unwrap() {
            result.unwrap();
        }
        device.take_log()
    }

    /// How far it had come at an event of the record.
    pub fn progress_at(&self, log: &Log, event: usize) -> Progresses {
        let mut progress = vec![Progress::default(); self.scripts.len()];
        for (label, value) in log.marks(event) {
            let p = &mut progress[(value >> 32) as usize];
            let n = (value & 0xffff_ffff) as usize;
            if label == "begun" {
                p.begun = n
            } else {
                p.acked = n
            }
        }
        progress
    }

    /// Recovers the volume and checks everything that was promised.
    pub fn check(
        &self,
        crashed: &MemDevice,
        progress: &Progresses,
        thorough: bool,
    ) -> Result<(), String> {
        let device = Arc::new(crashed.fork());
        let fs = open(&device, &self.options).map_err(|e| format!("cannot be opened: {e}"))?;
        let seen = Seen::capture(&fs)?;
        self.check_seen(&fs, &seen, progress)?;
        if thorough {
            use_it(&fs, &seen).map_err(|e| format!("in use after the recovery: {e}"))?;
        }
        fs.unmount()
            .map_err(|e| format!("cannot be unmounted: {e}"))?;
        gone(fs);
        if thorough {
            fsck(&device)?;
            self.check_again(crashed)?;
        }
        Ok(())
    }

    /// Whether the volume can be opened at all.
    pub fn opens(&self, crashed: &MemDevice) -> bool {
        recovered(crashed, &self.options).is_ok()
    }

    fn check_seen(&self, fs: &Fs, seen: &Seen, progress: &Progresses) -> Result<(), String> {
        for ((script, progress), dir) in self.scripts.iter().zip(progress).zip(DIRS) {
            judge(seen, dir, script, *progress, self.preset)?;
        }
        let sums = sums(fs, seen);
        if sums != (self.base.blocks, self.base.inodes) {
            return Err(format!(
                "blocks and inodes, free and used, are {sums:?}, but were {:?}",
                (self.base.blocks, self.base.inodes)
            ));
        }
        Ok(())
    }

    /// A recovery that is done again, or after it was cut anywhere, gives the same.
    pub fn check_again(&self, crashed: &MemDevice) -> Result<(), String> {
        let replay = FsOptions {
            read_only: true,
            ..self.options.clone()
        };
        let once = recovered(crashed, &replay)?;
        let twice = recovered(&once, &replay)?;
        same(&once, &twice, "a second replay")?;
        let tree = |device: &MemDevice| -> Result<Seen, String> {
            let fs = open(&Arc::new(device.fork()), &self.options).map_err(|e| e.to_string())?;
            let seen = Seen::capture(&fs)?;
            gone(fs);
            Ok(seen)
        };
        let first = tree(crashed)?;
        if first != tree(&recovered(crashed, &self.options)?)? {
            return Err("a second recovery gives another tree".into());
        }
        Ok(())
    }

    /// Cuts the recovery itself after every write (`every` of them): replayed then, the volume is the same.
    pub fn check_cut_recovery(
        &self,
        crashed: &MemDevice,
        progress: &Progresses,
    ) -> Result<u64, String> {
        let replay = FsOptions {
            read_only: true,
            ..self.options.clone()
        };
        let whole = recovered(crashed, &replay)?;
        let mut cut = 0;
        loop {
            let (left, finished) = cut_recovery(crashed, &replay, cut);
            same(
                &whole,
                &recovered(&left, &replay)?,
                &format!("a replay cut after {cut} writes"),
            )?;
            if finished {
                break;
            }
            cut += 1;
        }
        let replays = cut;
        cut = 0;
        loop {
            let (left, finished) = cut_recovery(crashed, &self.options, cut);
            self.check(&left, progress, false)
                .map_err(|e| format!("a recovery cut after {cut} writes: {e}"))?;
            if finished {
                return Ok(replays + cut);
            }
            cut += 1;
        }
    }
}

/// What the recovery of a crashed volume writes.
pub fn record_recovery(crashed: &MemDevice, options: &FsOptions) -> Result<Log, String> {
    let device = Arc::new(Recorder::new(crashed.fork()));
    gone(open(&device, options).map_err(|e| format!("cannot be opened: {e}"))?);
    Ok(device.take_log())
}

fn cut_recovery(crashed: &MemDevice, options: &FsOptions, cut: u64) -> (MemDevice, bool) {
    let device = Arc::new(FaultInjector::new(crashed.fork()));
    device.power_off_after(cut);
    let opened = open(&device, options);
    let finished = opened.is_ok() && !device.is_off();
    if let Ok(fs) = opened {
        gone(fs);
    }
    (device.inner().fork(), finished)
}

/// The device after the volume was opened, and dropped as in a crash.
fn recovered(crashed: &MemDevice, options: &FsOptions) -> Result<MemDevice, String> {
    let device = Arc::new(crashed.fork());
    gone(open(&device, options).map_err(|e| format!("cannot be opened: {e}"))?);
    Ok(device.fork())
}

fn same(a: &MemDevice, b: &MemDevice, what: &str) -> Result<(), String> {
    match a.differences(b).as_slice() {
        [] => Ok(()),
        ranges => Err(format!(
            "{what} gives another image: bytes {ranges:?} differ"
        )),
    }
}

/// Drops a volume as a crash does, and sees that nothing of it stays behind.
fn gone(fs: Arc<Fs>) {
    let weak = Arc::downgrade(&fs);
    drop(fs);
    // A thread of the journal's may hold it for a moment.
    for _ in 0..200 {
        if weak.strong_count() == 0 {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("a closed volume stays in memory");
}

/// A recovered volume is as good as any: files grow with zeroes, new ones can be written and synced.
fn use_it(fs: &Arc<Fs>, seen: &Seen) -> Result<(), String> {
    let ctx = Ctx::default();
    let said = |e: FsError| e.to_string();
    let files = seen
        .nodes
        .iter()
        .filter(|(_, n)| n.kind == stetfs::FileType::Regular);
    for (ino, node) in files.take(8) {
        let size = node.size + 5000;
        fs.setattr(
            &ctx,
            *ino,
            &SetAttr {
                size: Some(size),
                ..SetAttr::default()
            },
        )
        .map_err(said)?;
        let file = fs.open_inode(&ctx, *ino, libc::O_RDWR).map_err(said)?;
        let content = read(fs, &file, size).map_err(said)?;
        let (old, new) = content.split_at(node.content.len());
        if old != node.content || new.iter().any(|b| *b != 0) {
            return Err(format!(
                "inode {ino} of {} bytes grew with something else than zeroes",
                node.size
            ));
        }
    }
    let mut session = Session::new(fs, DIRS[0]).map_err(said)?;
    use super::op::Op;
    for i in 0..5 {
        let path = format!("after-{i}");
        let ops = [
            Op::Create {
                path: path.clone(),
                mode: 0o644,
            },
            Op::Write {
                path: path.clone(),
                offset: 0,
                len: 9000,
                key: i,
            },
            Op::Fsync { path: path.clone() },
        ];
        ops.iter()
            .try_for_each(|op| session.run(op))
            .map_err(said)?;
        let written = Seen::capture(fs)?;
        let ino = written
            .find(&format!("{}/{path}", DIRS[0]))
            .ok_or("the new file is not there")?;
        if written.nodes[&ino].content != super::op::bytes(i, 9000) {
            return Err("a new file reads wrong".into());
        }
    }
    Ok(())
}
