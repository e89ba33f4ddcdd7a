//! File data after a crash. The free blocks of the volume hold old bytes, which must never show.

use std::sync::{Arc, OnceLock};

use stetfs_block::{MemDevice, Recorder, Replay};
use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume, fresh};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 24,
    extents: true,
    cluster: 1,
};
const BLOCK_MAPPED: Shape = Shape {
    extents: false,
    ..SHAPE
};
const FILES: usize = 4;
const MOST: u64 = 120_000;
/// The content of free blocks.
const OLD: u8 = 0xEE;

/// A volume without files, with free blocks full of [`OLD`].
fn used(shape: Shape) -> MemDevice {
    static USED: [OnceLock<MemDevice>; 2] = [const { OnceLock::new() }; 2];
    let used = USED[usize::from(shape.extents)].get_or_init(|| {
        let mem = Arc::new(fresh(shape));
        let fs = Fs::open(mem.clone(), FsOptions::default()).unwrap();
        let (attr, f) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"old", 0o600, 0, libc::O_RDWR)
            .unwrap();
        let mut at = 0;
        while let Ok(n) = fs.write(&Ctx::ROOT, &f, at, &[OLD; 1 << 20], false) {
            at += n as u64;
        }
        drop(f);
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"old").unwrap();
        fs.forget(attr.ino, 1);
        fs.unmount().unwrap();
        mem.fork()
    });
    used.fork()
}

/// The content of a file between two operations; `None`: the file does not exist.
struct Version {
    /// Position in the log of requests at the start of the operation.
    since: usize,
    content: Option<Vec<u8>>,
}

/// All versions of a file.
struct History {
    versions: Vec<Version>,
    /// Position in the log at the end of each sync, and the version that it made durable.
    synced: Vec<(usize, usize)>,
}

impl History {
    /// The versions that may exist after a crash at `position`.
    fn candidates(&self, position: usize) -> &[Version] {
        let first = self
            .synced
            .iter()
            .filter(|(p, _)| *p <= position)
            .map(|(_, v)| *v)
            .max()
            .unwrap_or(0);
        let last = self
            .versions
            .iter()
            .rposition(|v| v.since <= position)
            .unwrap_or(0);
        &self.versions[first..=last.max(first)]
    }
}

fn name(i: usize) -> String {
    format!("f{i}")
}

struct Run {
    extents: bool,
    vol: Volume,
    recorder: Arc<Recorder<Arc<MemDevice>>>,
    files: Vec<Option<OpenRef>>,
    histories: Vec<History>,
}

impl Run {
    fn new(base: &MemDevice, shape: Shape, data: DataMode) -> Run {
        let mem = Arc::new(base.fork());
        let recorder = Arc::new(Recorder::new(mem.clone()));
        let opts = FsOptions {
            journal: data.into(),
            cache_bytes: 2 << 20,
            ..FsOptions::default()
        };
        let vol = Volume::on(mem, recorder.clone(), opts);
        let start = || History {
            versions: vec![Version {
                since: 0,
                content: None,
            }],
            synced: Vec::new(),
        };
        Run {
            vol,
            extents: shape.extents,
            recorder,
            files: vec![None; FILES],
            histories: (0..FILES).map(|_| start()).collect(),
        }
    }

    /// One operation on one file.
    fn step(&mut self, rng: &mut fastrand::Rng) {
        let i = rng.usize(..FILES);
        let since = self.recorder.position();
        let fs = self.vol.fs().clone();
        let history = &mut self.histories[i];
        let (Some(f), Some(mut content)) = (
            self.files[i].clone(),
            history.versions.last().unwrap().content.clone(),
        ) else {
            self.files[i] = Some(self.vol.create(&name(i)));
            history.versions.push(Version {
                since,
                content: Some(Vec::new()),
            });
            return;
        };
        let at = rng.u64(..MOST);
        let len = if rng.bool() {
            rng.usize(1..5000)
        } else {
            rng.usize(1..40_000)
        };
        let byte = rng.u8(1..0xE0);
        let zero = |content: &mut Vec<u8>, end: usize| {
            let end = end.min(content.len());
            if let Some(gone) = content.get_mut(at as usize..end) {
                gone.fill(0);
            }
        };
        match rng.u8(..20) {
            0..8 => {
                let at = if rng.bool() { content.len() as u64 } else { at };
                fs.write(&Ctx::ROOT, &f, at, &vec![byte; len], false)
                    .unwrap();
                let end = at as usize + len;
                content.resize(content.len().max(end), 0);
                content[at as usize..end].fill(byte);
            }
            8..10 => {
                self.vol.truncate(&f, at).unwrap();
                content.resize(at as usize, 0);
            }
            10 => {
                fs.fallocate(&Ctx::ROOT, &f, FallocateMode::PunchHole, at, len as u64)
                    .unwrap();
                zero(&mut content, at as usize + len);
            }
            // Without extents there are no unwritten blocks.
            11 | 12 if !self.extents => return,
            11 => {
                let mode = FallocateMode::ZeroRange { keep_size: true };
                fs.fallocate(&Ctx::ROOT, &f, mode, at, len as u64).unwrap();
                zero(&mut content, at as usize + len);
            }
            12 => {
                let mode = FallocateMode::Allocate { keep_size: true };
                fs.fallocate(&Ctx::ROOT, &f, mode, at, len as u64).unwrap();
            }
            13 => {
                let ino = f.ino();
                fs.unlink(&Ctx::ROOT, ROOT_INO, name(i).as_bytes()).unwrap();
                drop(f);
                self.files[i] = None;
                fs.forget(ino, 1);
                history.versions.push(Version {
                    since,
                    content: None,
                });
                return;
            }
            // A commit that runs while the next operations do.
            14 | 15 => return fs.sync_all(Box::new(|_| {})),
            16 => {
                let (tx, rx) = std::sync::mpsc::channel();
                fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
                rx.recv().unwrap().unwrap();
                let position = self.recorder.position();
                for history in &mut self.histories {
                    history.synced.push((position, history.versions.len() - 1));
                }
                return;
            }
            n => {
                self.vol.fsync(&f, n % 2 == 0).unwrap();
                // For a new file this covers its name, too, because one transaction made both.
                history
                    .synced
                    .push((self.recorder.position(), history.versions.len() - 1));
                return;
            }
        }
        history.versions.push(Version {
            since,
            content: Some(content),
        });
    }
}

/// Checks that each byte of the content is that of one of these versions.
fn mixed_of(have: &[u8], candidates: &[Version]) -> Result<(), String> {
    let contents: Vec<&Vec<u8>> = candidates
        .iter()
        .filter_map(|v| v.content.as_ref())
        .collect();
    if !contents.iter().any(|c| c.len() == have.len()) {
        return Err(format!("a size of {}", have.len()));
    }
    for (o, byte) in have.iter().enumerate() {
        // Behind the end of a version there may be a hole.
        if !contents
            .iter()
            .any(|c| c.get(o).map_or(*byte == 0, |b| b == byte))
        {
            return Err(format!("byte {o} is {byte:#04x}, as it never was"));
        }
    }
    Ok(())
}

fn check(device: MemDevice, data: DataMode, histories: &[History], position: usize, what: &str) {
    let mem = Arc::new(device);
    let opts = FsOptions {
        journal: data.into(),
        ..FsOptions::default()
    };
    if let Err(e) = Fs::open(mem.clone(), opts.clone()) {
        panic!("{what}: {e}");
    }
    let vol = Volume::on(mem.clone(), mem, opts);
    for (i, history) in histories.iter().enumerate() {
        let candidates = history.candidates(position);
        let there = match vol.fs().lookup(ROOT_INO, name(i).as_bytes()) {
            Ok(attr) => {
                vol.fs().forget(attr.ino, 1);
                true
            }
            Err(e) => {
                assert_eq!(e.errno(), libc::ENOENT, "{what}");
                false
            }
        };
        if !there {
            assert!(
                candidates.iter().any(|v| v.content.is_none()),
                "{what}: file {i} is gone"
            );
            continue;
        }
        let f = vol.open(&name(i));
        let have = vol.content(&f);
        if data.keeps_whole() {
            let whole = candidates.iter().any(|v| v.content.as_ref() == Some(&have));
            assert!(
                whole,
                "{what}: file {i} of {} bytes is none of its {} versions",
                have.len(),
                candidates.len()
            );
        } else if let Err(e) = mixed_of(&have, candidates) {
            panic!("{what}: file {i}: {e}");
        }
    }
    vol.finish();
}

fn crash_often(shape: Shape, data: DataMode) {
    let (runs, crashes) = match std::env::var("STET_CRASH_RUNS")
        .ok()
        .and_then(|n| n.parse().ok())
    {
        Some(n) => (0..n, 12),
        None => (0..6u64, 6),
    };
    let base = used(shape);
    for seed in runs {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut run = Run::new(&base, shape, data);
        for _ in 0..rng.usize(20..150) {
            run.step(&mut rng);
        }
        let log = run.recorder.log();
        let histories = run.histories;
        drop(run.files);
        drop(run.vol);
        let mut positions: Vec<usize> = (0..crashes).map(|_| rng.usize(..=log.len())).collect();
        positions.sort_unstable();
        let mut replay = Replay::new(&base, &log);
        for position in positions {
            replay.advance_to(position);
            let share = rng.u8(..=100);
            let what = format!(
                "seed {seed}, {share} % of what was pending after {position} of {} requests",
                log.len()
            );
            let device = replay.crash(|_| rng.u8(..100) < share);
            check(device, data, &histories, position, &what);
        }
    }
}

/// data.D3, data.D4.
#[test]
fn ordered_data_is_old_or_new_and_never_foreign() {
    crash_often(SHAPE, DataMode::Ordered);
}

#[test]
fn journaled_writes_are_whole_or_absent() {
    crash_often(SHAPE, DataMode::Journal);
    crash_often(SHAPE, DataMode::Overwrites);
}

const CLUSTERS: Shape = Shape {
    cluster: 4,
    ..SHAPE
};

#[test]
fn data_in_clusters_is_old_or_new_and_never_foreign() {
    crash_often(CLUSTERS, DataMode::Ordered);
}

#[test]
fn journaled_writes_in_clusters_are_whole_or_absent() {
    crash_often(CLUSTERS, DataMode::Journal);
    crash_often(CLUSTERS, DataMode::Overwrites);
}

#[test]
fn block_mapped_data_is_old_or_new_and_never_foreign() {
    crash_often(BLOCK_MAPPED, DataMode::Ordered);
}

#[test]
fn journaled_writes_to_block_mapped_files_are_whole_or_absent() {
    crash_often(BLOCK_MAPPED, DataMode::Journal);
    crash_often(BLOCK_MAPPED, DataMode::Overwrites);
}
