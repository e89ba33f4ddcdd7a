//! Crashes of the kernel's ext4, recovered by StetFS, by e2fsck and by the kernel: what one of them
//! brings back, StetFS must.
//!
//! The journals are of others: their compound transactions, and their fast commits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use serde::Serialize;
use stetfs::low::{JournalRecord, JournalRecordKind, MemDevice, preset};
use stetfs_block::{Log, Recorder, Replay};
use stetfs_testkit::{Image, Mkfs};

use super::classify::{Broken, classify};
use super::served::Served;
use super::{Crashes, Limits, Mounted, System, Task, candidates, choose, record};
use crate::judge;
use crate::state::StateId;
use crate::tree::Seen;
use crate::volume::{DIRS, by_e2fsck, fsck};
use crate::workload::Progress;

/// Who recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// The library.
    Stetfs,
    /// `e2fsck -fy`.
    E2fsck,
    /// A mount.
    Kernel,
}

/// What came of one reader.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Readings {
    /// Images that it could not recover.
    pub refused: usize,
    /// Images in which something is lost that was synced.
    pub lost: usize,
    /// Images in which e2fsck finds something afterwards.
    pub unsound: usize,
}

/// What came of one volume and workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForeignRow {
    /// Features given to mke2fs, and mount options.
    pub volume: String,
    /// The workload.
    pub workload: String,
    /// Different images, each recovered by all.
    pub distinct: usize,
    /// Of these, how many had fast commits to be carried out.
    pub fast: usize,
    /// By reader.
    pub readers: BTreeMap<Reader, Readings>,
    /// Images of which StetFS shows something else than e2fsck does, and than the kernel does.
    pub differ: (usize, usize),
    /// Images with which StetFS did worse than another.
    pub worse: usize,
    /// Recoveries of StetFS that were cut, and of these, those after which another one did not
    /// come to the same.
    pub cut: (usize, usize),
    /// The same with mounts of the kernel that were cut while they carried out fast commits.
    pub kernel_cut: (usize, usize),
    /// Time.
    pub seconds: f64,
    /// The first of each kind.
    pub examples: Vec<String>,
}

/// A kernel's volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// `-O` of mke2fs.
    pub features: String,
    /// Bytes in a block.
    pub block: u32,
    /// Mount options.
    pub options: String,
    /// Where the images of examples are kept.
    pub keep: Option<PathBuf>,
}

impl Volume {
    fn make(&self) -> Result<MemDevice> {
        let has = |feature: &str| self.features.split(',').any(|f| f == feature);
        // Linux 6.18 hits a BUG (fs/ext4/extents.c:3230), and sync(2) hangs from then on.
        ensure!(
            !(has("fast_commit") && has("^extents")),
            "the kernel does not survive fast commits of files that are mapped by blocks"
        );
        let mut mkfs = Mkfs::blocks(self.block).journal_mib(4);
        for feature in self.features.split(',').filter(|f| !f.is_empty()) {
            mkfs = mkfs.feature(feature);
        }
        let image = Image::make(32 << 20, &mkfs)?;
        Ok(MemDevice::load(image.path())?)
    }
}

/// What a reader made of an image.
struct Reading {
    seen: Seen,
    unsound: Option<String>,
}

impl Reader {
    /// All of them, StetFS first.
    const ALL: [Reader; 3] = [Reader::Stetfs, Reader::E2fsck, Reader::Kernel];

    fn read(self, crashed: &MemDevice, volume: &Volume) -> Result<Reading, String> {
        let stetfs = System::Stetfs(preset::ORDERED);
        let (seen, after) = match self {
            Reader::Stetfs => stetfs.recover(crashed)?,
            Reader::E2fsck => {
                let (after, _) = by_e2fsck(crashed, &["-fy"])?;
                (stetfs.recover(&after)?.0, after)
            }
            Reader::Kernel => {
                let options = volume.options.clone();
                let fstype = "ext4".to_owned();
                System::Kernel { fstype, options }.recover(crashed)?
            }
        };
        Ok(Reading {
            seen,
            unsound: fsck(&after).err(),
        })
    }
}

/// Records `workload` on a mount of the kernel, and has crash states of it recovered by all
/// readers.
///
/// # Errors
/// Not root, something is not installed, or the workload failed.
pub fn foreign(volume: &Volume, workload: &str, limits: Limits) -> Result<ForeignRow> {
    let begin = Instant::now();
    let task = Task::of(workload, limits.seed)?;
    let base = volume.make()?;
    let system = System::Kernel {
        fstype: "ext4".into(),
        options: volume.options.clone(),
    };
    // Nothing is mounted by StetFS here.
    let log = record(&system, &task, &base, Path::new(""))
        .with_context(|| format!("recording {workload} on {volume:?}"))?;
    let chosen = choose(&base, &log, candidates(&base, &log, limits.seed), limits);
    let row = Mutex::new(ForeignRow {
        volume: format!(
            "{} -b {} -o {}",
            volume.features, volume.block, volume.options
        ),
        workload: workload.into(),
        ..ForeignRow::default()
    });
    let crashes = Crashes {
        base: &base,
        log: &log,
        chosen,
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    crashes.each(threads, begin, limits, &|_, state, image, told| {
        look(volume, &task, state, image, told, &row)
    })?;
    let mut row = row.into_inner();
    row.seconds = begin.elapsed().as_secs_f64();
    Ok(row)
}

/// Has a state recovered by all, and puts what came of it into the row.
fn look(
    volume: &Volume,
    task: &Task,
    state: &StateId,
    image: &MemDevice,
    told: Progress,
    row: &Mutex<ForeignRow>,
) -> Result<(), String> {
    let fast = fast_commits(image);
    let mut example = Vec::new();
    let mut tell = |who: Reader, what: &str| {
        example.push(format!(
            "crash {state}, after operation {}: {who:?}: {what}",
            told.acked
        ));
    };
    let mut readings = Vec::new();
    for reader in Reader::ALL {
        let reading = reader.read(image, volume);
        let lost = match (&reading, task) {
            (Ok(reading), Task::Script(script)) => {
                let Broken { lost, .. } = classify(&reading.seen, DIRS[0], script, told);
                lost
            }
            (Ok(reading), Task::Program(p)) => {
                (p.check)(&reading.seen, DIRS[0], (told.begun, told.acked)).err()
            }
            (Err(_), _) => None,
        };
        readings.push((reader, reading, lost));
    }
    let mut cuts = Vec::new();
    if let Some((_, Ok(ours), _)) = readings.first().filter(|_| fast) {
        for by in [Reader::Stetfs, Reader::Kernel] {
            let log = match by {
                Reader::Kernel => kernel_recovery(image, volume)?,
                _ => our_recovery(image)?,
            };
            let rng = fastrand::Rng::with_seed(state.event as u64);
            cuts.push((by, cut(image, &log, &ours.seen, rng)));
        }
    }
    let mut row = row.lock();
    row.distinct += 1;
    row.fast += usize::from(fast);
    for (by, (tried, broken)) in cuts {
        let counts = match by {
            Reader::Kernel => &mut row.kernel_cut,
            _ => &mut row.cut,
        };
        counts.0 += tried;
        counts.1 += broken.len();
        let first = counts.1 == broken.len();
        if by == Reader::Stetfs {
            row.worse += broken.len();
        }
        if let Some(what) = broken.first().filter(|_| first) {
            tell(by, &format!("cut in its recovery: {what}"));
        }
    }
    for (reader, reading, lost) in &readings {
        let counts = row.readers.entry(*reader).or_default();
        let unsound = reading.as_ref().ok().and_then(|r| r.unsound.as_ref());
        counts.refused += usize::from(reading.is_err());
        counts.lost += usize::from(lost.is_some());
        counts.unsound += usize::from(unsound.is_some());
        let first = [
            (counts.refused, reading.as_ref().err()),
            (counts.lost, lost.as_ref()),
            (counts.unsound, unsound),
        ];
        for (count, what) in first {
            if let Some(what) = what.filter(|_| count == 1) {
                tell(*reader, what);
            }
        }
    }
    let [(_, ours, our_lost), others @ ..] = &readings[..] else {
        return Ok(());
    };
    let mut worse = ours.as_ref().is_ok_and(|r| r.unsound.is_some());
    for (reader, theirs, their_lost) in others {
        let Ok(theirs) = theirs else { continue };
        worse |= their_lost.is_none() && (ours.is_err() || our_lost.is_some());
        let Some(what) = ours
            .as_ref()
            .ok()
            .and_then(|o| difference(&o.seen, &theirs.seen))
        else {
            continue;
        };
        let count = match reader {
            Reader::E2fsck => &mut row.differ.0,
            _ => &mut row.differ.1,
        };
        *count += 1;
        if *count == 1 {
            tell(*reader, &format!("{what} (StetFS first)"));
        }
    }
    row.worse += usize::from(worse);
    if let Some(dir) = volume.keep.as_ref().filter(|_| !example.is_empty()) {
        let path = dir.join(format!("{state}.img"));
        let said = |e: std::io::Error| format!("{}: {e}", path.display());
        image.save(&path).map_err(said)?;
    }
    row.examples.append(&mut example);
    Ok(())
}

/// Cuts of one recovery that are tried.
const CUTS: usize = 3;

/// What a recovery by StetFS does to the device.
fn our_recovery(image: &MemDevice) -> Result<Log, String> {
    let device = Arc::new(Recorder::new(image.fork()));
    let options = crate::volume::options(preset::ORDERED);
    let fs = crate::volume::open(&device, &options).map_err(|e| e.to_string())?;
    fs.unmount().map_err(|e| e.to_string())?;
    judge::gone(fs).map_err(|e| e.to_string())?;
    Ok(device.take_log())
}

/// What a mount by the kernel does to the device, also if it fails.
fn kernel_recovery(image: &MemDevice, volume: &Volume) -> Result<Log, String> {
    let system = System::Kernel {
        fstype: "ext4".into(),
        options: volume.options.clone(),
    };
    let recorded = Served::record(image, |file, _| {
        match Mounted::new(&system, file, Path::new("")) {
            Ok(mount) => mount.umount(),
            Err(_) => Ok(()),
        }
    });
    recorded.map_err(|e| format!("{e:#}"))
}

/// Cuts a recovery, and lets StetFS recover what it left. Gives how often, and what came to be
/// otherwise.
fn cut(image: &MemDevice, log: &Log, whole: &Seen, mut rng: fastrand::Rng) -> (usize, Vec<String>) {
    let mut states = candidates(image, log, rng.u64(..));
    rng.shuffle(&mut states);
    states.truncate(CUTS);
    states.sort_by_key(|s| s.event);
    let mut replay = Replay::new(image, log);
    let mut broken = Vec::new();
    for state in &states {
        let left = state.make(&mut replay);
        let what = match System::Stetfs(preset::ORDERED).recover(&left) {
            Err(why) => Some(why),
            Ok((seen, after)) => difference(&seen, whole).or(fsck(&after).err()),
        };
        broken.extend(what.map(|what| format!("at {state}: {what}")));
    }
    (states.len(), broken)
}

/// Whether the journal holds fast commits that count.
fn fast_commits(image: &MemDevice) -> bool {
    let found = stetfs::low::inspect(Arc::new(image.fork()), None).ok();
    let Some(log) = found.and_then(|found| found.log) else {
        return false;
    };
    let mut any = false;
    let walked = log.walk(&mut |record| {
        let kind = JournalRecord::from(record).kind;
        any |= matches!(kind, JournalRecordKind::FastCommit { .. });
        Ok(())
    });
    walked.is_ok() && any
}

/// The first thing in which two trees differ, by path; times and what directories say of themselves
/// do not count.
fn difference(a: &Seen, b: &Seen) -> Option<String> {
    let (a, b) = (paths(a), paths(b));
    for path in a.keys().chain(b.keys()) {
        let (x, y) = (a.get(path), b.get(path));
        if x != y {
            return Some(format!("{path}: {}, {}", shown(x), shown(y)));
        }
    }
    None
}

/// What is compared of a name.
type Shown = (
    String,
    u32,
    (u32, u32),
    u64,
    Vec<u8>,
    Vec<u8>,
    Vec<(String, Vec<u8>)>,
);

fn shown(node: Option<&Shown>) -> String {
    let Some((kind, mode, owner, size, content, target, xattrs)) = node else {
        return "is not there".into();
    };
    let hash = content
        .iter()
        .fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
    format!(
        "{kind} {mode:o} {owner:?} {size} bytes #{hash:x} {target:?} {} attributes",
        xattrs.len()
    )
}

fn paths(seen: &Seen) -> BTreeMap<String, Shown> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(String::new(), stetfs::low::ROOT_INO)];
    while let Some((path, ino)) = todo.pop() {
        let Some(node) = seen.nodes.get(&ino) else {
            continue;
        };
        let names = node
            .entries
            .iter()
            .filter(|(name, _)| *name != "lost+found");
        todo.extend(names.map(|(name, child)| (format!("{path}/{name}"), *child)));
        let dir = node.kind == stetfs::low::FileType::Directory;
        let user = node
            .xattrs
            .iter()
            .filter(|(name, _)| name.starts_with("user."));
        let shown = (
            format!("{:?}", node.kind),
            node.mode,
            (node.uid, node.gid),
            if dir { 0 } else { node.size },
            node.content.clone(),
            node.target.clone(),
            user.map(|(n, v)| (n.clone(), v.clone())).collect(),
        );
        all.insert(path, shown);
    }
    all
}
