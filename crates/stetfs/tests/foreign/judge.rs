//! Three recoveries of one volume, and the verdicts on them.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use stetfs::low::{MemDevice, Volume, VolumeOptions};
use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::jbd2::block::read_header;
use stetfs_ondisk::jbd2::{BlockType, IncompatFlags, commit};
use stetfs_testkit::{
    CaptureOptions, Image, LoopDev, LoopOptions, Mounter, Scratch, Tree, cmd, tree,
};

use super::log::Log;
use super::memory::Memory;

/// A volume whose journal must be replayed.
pub struct Dirty {
    /// Its origin.
    pub what: String,
    pub volume: MemDevice,
    /// The device of its journal, if it is another.
    pub journal: Option<MemDevice>,
}

impl Dirty {
    pub fn of(what: impl Into<String>, image: &Path) -> Dirty {
        Dirty {
            what: what.into(),
            volume: MemDevice::load(image).unwrap(),
            journal: None,
        }
    }

    /// A copy, to be changed.
    pub fn fork(&self) -> Dirty {
        Dirty {
            what: self.what.clone(),
            volume: self.volume.fork(),
            journal: self.journal.as_ref().map(MemDevice::fork),
        }
    }

    /// Files for one recovery to work on.
    fn files(&self) -> Files {
        let memory = Memory::new(64);
        let save = |device: &MemDevice, name| {
            let path = memory.path().join(name);
            device.save(&path).unwrap();
            Image::at(path, Scratch::new("foreign").unwrap())
        };
        Files {
            volume: save(&self.volume, "volume"),
            journal: self.journal.as_ref().map(|j| save(j, "journal")),
            _memory: memory,
        }
    }
}

struct Files {
    volume: Image,
    journal: Option<Image>,
    _memory: Memory,
}

/// The outcome of a recovery.
pub enum Outcome {
    /// It was recovered: the tree, and the faults that e2fsck finds afterwards.
    Recovered {
        tree: Tree,
        wrong: Option<String>,
        /// Transactions and blocks that were replayed, and files that were found half truncated, if
        /// the implementation reports them.
        replayed: Option<Replayed>,
        /// A complaint about damage.
        complaint: Option<String>,
    },
    /// It was recovered, but damage was replayed, or the tree cannot be read.
    Broken(String),
    /// It was replayed, but the replayed blocks damaged it, and it was refused afterwards: the
    /// reason, and the tree after e2fsck.
    Spoilt(String, Tree),
    /// It was refused: the reason.
    Refused(String),
    /// Not tried, because the volume would be damaged: a bug of the kernel could crash the machine.
    Unasked,
}

/// The counts that a recovery reports.
#[derive(Clone, Copy)]
pub struct Replayed {
    transactions: u64,
    blocks: u64,
    truncated: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Refused(why) => write!(f, "refuses: {}", why.trim()),
            Outcome::Unasked => f.write_str("not asked"),
            Outcome::Broken(why) => write!(f, "a broken volume: {}", why.trim()),
            Outcome::Spoilt(why, tree) => {
                let entries = tree.entries.len();
                write!(
                    f,
                    "refuses what it replayed: {}; {entries} entries after e2fsck",
                    why.trim()
                )
            }
            Outcome::Recovered {
                tree,
                wrong,
                replayed,
                complaint,
            } => {
                write!(f, "{} entries", tree.entries.len())?;
                if let Some(replayed) = replayed {
                    let Replayed {
                        transactions,
                        blocks,
                        ..
                    } = replayed;
                    write!(f, ", {transactions} transactions, {blocks} blocks")?;
                }
                if let Some(complaint) = complaint {
                    write!(f, ", with a complaint: {}", complaint.trim())?;
                }
                if wrong.is_some() {
                    write!(f, ", and e2fsck finds fault")?;
                }
                Ok(())
            }
        }
    }
}

/// The outcomes of all three.
pub struct Outcomes {
    pub ours: Outcome,
    pub kernel: Outcome,
    pub e2fsck: Outcome,
}

impl Outcomes {
    /// For an undamaged journal of the kernel or debugfs.
    pub fn of(dirty: &Dirty) -> Result<Outcomes, String> {
        Ok(Outcomes {
            ours: ours(dirty, true)?,
            kernel: kernel(dirty),
            e2fsck: e2fsck(dirty),
        })
    }

    /// For a damaged journal. The kernel is tried only with volumes that come out sound.
    fn of_damaged(dirty: &Dirty) -> Result<Outcomes, String> {
        let ours = ours(dirty, false)?;
        let kernel = match &ours {
            Outcome::Recovered { .. } => kernel(dirty),
            _ => Outcome::Unasked,
        };
        Ok(Outcomes {
            ours,
            kernel,
            e2fsck: e2fsck(dirty),
        })
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  stetfs: {}", self.ours)?;
        writeln!(f, "  kernel: {}", self.kernel)?;
        write!(f, "  e2fsck: {}", self.e2fsck)
    }
}

/// The tree of a recovered volume, as the kernel sees it.
fn look(files: &Files) -> Result<Tree, String> {
    let said = |e| format!("{e:#}");
    let mounted = Mounter::ext4("ro,noload")
        .mount(files.volume.path())
        .map_err(said)?;
    let tree = Tree::capture(mounted.path(), &CaptureOptions::same_image()).map_err(said)?;
    mounted.umount().map_err(said)?;
    Ok(tree)
}

/// The outcome of a recovery; a volume in which e2fsck finds faults is read only if `faulty`.
fn recovered(
    files: &Files,
    replayed: Option<Replayed>,
    complaint: Option<String>,
    faulty: bool,
) -> Outcome {
    // Without the device e2fsck does not look for an external journal.
    let wrong = match &files.journal {
        None => files.volume.e2fsck_fn().err().map(|e| format!("{e:#}")),
        Some(journal) => fsck(files, journal, "-fn").err(),
    };
    if let Some(wrong) = &wrong
        && !faulty
    {
        return Outcome::Broken(wrong.clone());
    }
    match look(files) {
        Ok(tree) => Outcome::Recovered {
            tree,
            wrong,
            replayed,
            complaint,
        },
        Err(why) => Outcome::Broken(why),
    }
}

fn fsck(files: &Files, journal: &Image, how: &str) -> Result<String, String> {
    let device = LoopDev::attach(journal.path(), LoopOptions::default()).unwrap();
    let mut e2fsck = Command::new("e2fsck");
    let command = e2fsck
        .args([how, "-j"])
        .args([device.path(), files.volume.path()]);
    let out = cmd::output(command).unwrap();
    let said = cmd::said(&out);
    match out.status.code() {
        Some(0 | 1) => Ok(said),
        _ => Err(said),
    }
}

/// Recovers with the library, as `stetfs recover` does. The prediction of `info` must come true,
/// and a refusal must change nothing.
fn ours(dirty: &Dirty, faulty: bool) -> Result<Outcome, String> {
    let files = dirty.files();
    let path = files.volume.path();
    if let Some(journal) = &files.journal {
        let options = VolumeOptions {
            journal_path: Some(journal.path().to_owned()),
            ..VolumeOptions::default()
        };
        return match Volume::open(path, &options) {
            Ok(volume) => {
                volume.close().map_err(|e| format!("closing: {e}"))?;
                Ok(recovered(&files, None, None, faulty))
            }
            Err(e) => unchanged(dirty, &files, e.to_string()),
        };
    }
    let foretold = stetfs::low::info(&path.into()).map(|info| info.recovery);
    match stetfs::low::recover(&path.into(), &Default::default(), &mut |_, _| {}) {
        Err(e) => {
            if let Ok(info) = foretold
                && info.problem.is_none()
            {
                return Err(format!("info foretells {info:?}, but it fails: {e}"));
            }
            unchanged(dirty, &files, e.to_string()).or_else(|why| spoilt(dirty, &files, why))
        }
        Ok(done) => {
            let done = done.recovery;
            let info = foretold.map_err(|e| format!("info fails: {e}, recover works"))?;
            if (info.transactions, info.blocks) != (done.transactions, done.blocks)
                || info.problem.is_some()
            {
                return Err(format!("info foretells {info:?}, what comes is {done:?}"));
            }
            let replayed = Some(Replayed {
                transactions: done.transactions,
                blocks: done.blocks,
                truncated: done.truncated,
            });
            Ok(recovered(&files, replayed, None, faulty))
        }
    }
}

fn unchanged(dirty: &Dirty, files: &Files, why: String) -> Result<Outcome, String> {
    let same = |device: &MemDevice, image: &Image| {
        let after = MemDevice::load(image.path()).unwrap();
        device.differences(&after).is_empty()
    };
    let journal = dirty.journal.iter().zip(&files.journal);
    if !same(&dirty.volume, &files.volume) || !journal.into_iter().all(|(d, i)| same(d, i)) {
        return Err(format!("it refuses ({why}), but changed the volume"));
    }
    Ok(Outcome::Refused(why))
}

/// A refusal after the replay, of a volume without checksums to detect damage beforehand.
fn spoilt(dirty: &Dirty, files: &Files, why: String) -> Result<Outcome, String> {
    let found =
        stetfs::low::inspect(Arc::new(dirty.volume.fork()), None).map_err(|e| e.to_string())?;
    if found
        .superblock
        .ro_compat()
        .contains(RoCompat::METADATA_CSUM)
    {
        return Err(why);
    }
    let repaired = files.volume.e2fsck_fy();
    repaired.map_err(|e| format!("{why}; {e:#}"))?;
    Ok(Outcome::Spoilt(why, look(files)?))
}

fn kernel(dirty: &Dirty) -> Outcome {
    let files = dirty.files();
    let device = files
        .journal
        .as_ref()
        .map(|journal| LoopDev::attach(journal.path(), LoopOptions::default()).unwrap());
    let options = device.as_ref().map_or(String::new(), |device| {
        format!("journal_path={}", device.path().display())
    });
    match Mounter::ext4(&options).recover(files.volume.path()) {
        Ok(()) => {
            drop(device);
            recovered(&files, None, None, true)
        }
        Err(e) => Outcome::Refused(format!("{e:#}")),
    }
}

/// Messages of e2fsck about a journal that it does not trust.
const COMPLAINTS: [&str; 6] = [
    "corrupt",
    "checksum error",
    "replay was aborted",
    "no valid journal",
    "unsupported",
    "Recreate",
];

fn e2fsck(dirty: &Dirty) -> Outcome {
    let files = dirty.files();
    let said = match &files.journal {
        None => stetfs_testkit::image::e2fsck_said(files.volume.path(), &["-fy"], 1)
            .map_err(|e| format!("{e:#}")),
        Some(journal) => fsck(&files, journal, "-fy"),
    };
    match said {
        Ok(said) => {
            let complains = COMPLAINTS.iter().any(|word| said.contains(word));
            recovered(&files, None, complains.then_some(said), true)
        }
        Err(said) => Outcome::Refused(said),
    }
}

/// The tree without allocated blocks: the kernel truncates files on the orphan list to their size,
/// including preallocated blocks beyond it; e2fsck keeps those.
fn without_blocks(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for entry in tree.entries.values_mut() {
        entry.blocks = None;
    }
    tree
}

/// Checks a sound journal: all three produce the same tree, with `least` transactions or more, and
/// a sound volume.
pub fn alike(dirty: &Dirty, least: u64) -> Result<(), String> {
    let all = Outcomes::of(dirty)?;
    let (
        Outcome::Recovered {
            tree: ours,
            wrong,
            replayed,
            ..
        },
        Outcome::Recovered { tree: kernel, .. },
        Outcome::Recovered {
            tree: e2fsck,
            complaint: None,
            ..
        },
    ) = (&all.ours, &all.kernel, &all.e2fsck)
    else {
        return Err(format!("not all recover it:\n{all}"));
    };
    if let Some(wrong) = wrong {
        return Err(format!("after ours e2fsck finds:\n{wrong}\n{all}"));
    }
    if let Some(Replayed { transactions, .. }) = replayed
        && *transactions < least
    {
        return Err(format!("{least} transactions were expected:\n{all}"));
    }
    same("stetfs and the kernel", ours, kernel, &all)?;
    same(
        "stetfs and e2fsck",
        &without_blocks(ours),
        &without_blocks(e2fsck),
        &all,
    )
}

/// The tree without times of files: the kernel changes the times of half truncated files; e2fsck
/// does not.
fn without_file_times(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for entry in tree
        .entries
        .values_mut()
        .filter(|e| e.kind == tree::Kind::File)
    {
        (entry.mtime, entry.ctime) = (None, None);
    }
    tree
}

/// The tree without attributes of directories: fast commits record the content of directories, and
/// each implementation sets times and counts in its own way.
fn without_directories(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for entry in tree
        .entries
        .values_mut()
        .filter(|e| e.kind == tree::Kind::Directory)
    {
        (entry.mtime, entry.ctime, entry.blocks) = (None, None, None);
        entry.nlink = 0;
    }
    tree
}

/// Checks sound fast commits: the tree is the kernel's, and the volume is sound. e2fsck 1.47.0 is
/// not tried: it loses names, and often leaves a superblock whose checksum does not match.
pub fn alike_fast(dirty: &Dirty) -> Result<(), String> {
    let all = Outcomes {
        ours: ours(dirty, true)?,
        kernel: kernel(dirty),
        e2fsck: Outcome::Unasked,
    };
    match (&all.ours, &all.kernel) {
        (
            Outcome::Recovered {
                wrong: Some(wrong), ..
            },
            _,
        ) => Err(format!("after ours e2fsck finds:\n{wrong}\n{all}")),
        (Outcome::Recovered { tree: ours, .. }, Outcome::Recovered { tree: kernel, .. }) => {
            let (ours, kernel) = (without_directories(ours), without_directories(kernel));
            same("stetfs and the kernel", &ours, &kernel, &all)
        }
        _ => Err(format!("not both recover it:\n{all}")),
    }
}

fn same(who: &str, a: &Tree, b: &Tree, all: &Outcomes) -> Result<(), String> {
    let lines = tree::diff(a, b);
    if lines.is_empty() {
        return Ok(());
    }
    Err(format!("{who} differ:\n{}\n{all}", lines.join("\n")))
}

/// The verdict on the recovery of a damaged journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same tree as the others.
    Alike,
    /// A refusal that changed nothing, while the kernel refuses or e2fsck complains, too.
    Refused,
    /// A refusal that changed nothing, while the others go on: blocks behind the end of their log
    /// show that it was longer, or a check of StetFS is stricter. The reason, without numbers.
    Stricter(String),
    /// The same tree as e2fsck, which complains about images, while the kernel refuses. A newer
    /// image of the same block follows each damaged one, and StetFS needs only the newest image of
    /// each block.
    Superseded,
    /// As the kernel. e2fsck ends the log at a commit block of which only the sector with the
    /// record was written; that transaction, and those that follow, were not acknowledged.
    CutCommit,
    /// Up to the last transaction, which is torn and, with async_commit, was not acknowledged. The
    /// kernel refuses to go on; e2fsck replays the undamaged part of it, and complains.
    TornAsync,
    /// The replayed blocks damage the volume, which e2fsck then repairs: possible without
    /// checksums.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Alike => f.write_str("alike"),
            Verdict::Refused => f.write_str("refused, as by another"),
            Verdict::Stricter(why) => write!(f, "refused, where the others go on: {why}"),
            Verdict::Superseded => {
                f.write_str("alike, but for damaged images that newer ones replace")
            }
            Verdict::CutCommit => {
                f.write_str("as the kernel: a commit block is cut behind its record")
            }
            Verdict::TornAsync => {
                f.write_str("up to a last transaction that is torn (async_commit)")
            }
            Verdict::Broken => f.write_str("broken by what came home"),
        }
    }
}

/// Checks the state after a power cut: as [`damaged`], but StetFS may refuse only if another does,
/// and with async_commit the others may refuse a torn last transaction, which was not acknowledged.
pub fn cut(dirty: &Dirty) -> Result<Verdict, String> {
    let all = Outcomes::of(dirty)?;
    match judge(dirty, &all)? {
        Some(Verdict::Stricter(_)) => Err(format!("ours alone refuses:\n{all}")),
        Some(verdict) => Ok(verdict),
        // Nothing was damaged: the others complain about that transaction.
        None if async_commit(dirty) => Ok(Verdict::TornAsync),
        None => Err(alone(&all)),
    }
}

/// Checks a damaged journal: StetFS produces the same tree as the others, or refuses and changes
/// nothing.
pub fn damaged(dirty: &Dirty) -> Result<Verdict, String> {
    let all = Outcomes::of_damaged(dirty)?;
    if let Some(verdict) = judge(dirty, &all)? {
        return Ok(verdict);
    }
    if torn_async(dirty) {
        return Ok(Verdict::TornAsync);
    }
    // e2fsck stops at bytes behind the record of a commit block, which the kernel and StetFS
    // ignore. Then it may not reach an image that the kernel refuses and StetFS does not need. The
    // check is repeated without these bytes.
    let Some(whole) = with_whole_commits(dirty) else {
        return Err(alone(&all));
    };
    let again = Outcomes::of_damaged(&whole)?;
    if let (Outcome::Recovered { tree: was, .. }, Outcome::Recovered { tree: is, .. }) =
        (&all.ours, &again.ours)
    {
        same("stetfs and stetfs with whole commit blocks", was, is, &all)?;
    }
    judge(&whole, &again)?.ok_or_else(|| alone(&again))
}

/// The journal with zeroes behind the records of commit blocks; `None` if that changes nothing.
fn with_whole_commits(dirty: &Dirty) -> Option<Dirty> {
    let whole = dirty.fork();
    let log = Log::find(&whole)?;
    let mut changed = false;
    for at in &log.heads {
        let mut block = log.read(&whole.volume, *at);
        if matches!(read_header(&block), Some((BlockType::Commit, _))) {
            let behind = block.iter_mut().skip(commit::LEN);
            behind.for_each(|byte| changed |= std::mem::take(byte) != 0);
            log.write(&whole.volume, *at, &block);
        }
    }
    changed.then_some(whole)
}

fn alone(all: &Outcomes) -> String {
    format!("ours alone goes on:\n{all}")
}

/// The verdict; `None` if StetFS goes on while the others refuse or complain.
fn judge(dirty: &Dirty, all: &Outcomes) -> Result<Option<Verdict>, String> {
    let complains = |outcome: &Outcome| match outcome {
        Outcome::Refused(_) => true,
        Outcome::Recovered { complaint, .. } => complaint.is_some(),
        Outcome::Broken(_) | Outcome::Spoilt(..) | Outcome::Unasked => false,
    };
    let (ours, wrong, truncated) = match &all.ours {
        Outcome::Refused(_) if complains(&all.kernel) || complains(&all.e2fsck) => {
            return Ok(Some(Verdict::Refused));
        }
        Outcome::Refused(why) => {
            let why = why.replace(|c: char| c.is_ascii_digit(), "");
            return Ok(Some(Verdict::Stricter(why)));
        }
        Outcome::Broken(_) | Outcome::Unasked => {
            return match &all.kernel {
                Outcome::Broken(_) | Outcome::Unasked => Ok(Some(Verdict::Broken)),
                _ => Err(format!("ours breaks the volume:\n{all}")),
            };
        }
        Outcome::Spoilt(_, ours) => {
            if let Outcome::Recovered { tree, .. } = &all.e2fsck {
                same("e2fsck after stetfs and e2fsck", ours, tree, all)?;
            }
            return Ok(Some(Verdict::Broken));
        }
        Outcome::Recovered {
            tree,
            wrong,
            replayed,
            ..
        } => (tree, wrong, replayed.is_some_and(|r| r.truncated > 0)),
    };
    let mut verdict = None;
    if let Outcome::Recovered {
        tree, wrong: fault, ..
    } = &all.kernel
    {
        if truncated {
            let (ours, tree) = (&without_file_times(ours), &without_file_times(tree));
            same("stetfs and the kernel", ours, tree, all)?;
        } else {
            same("stetfs and the kernel", ours, tree, all)?;
        }
        if wrong.is_some() && fault.is_none() {
            return Err(format!("after ours e2fsck finds fault:\n{all}"));
        }
        verdict = Some(Verdict::Alike);
    }
    if let Outcome::Recovered {
        tree, complaint, ..
    } = &all.e2fsck
        && complaint.as_ref().is_none_or(|said| of_images(said))
    {
        let (ours, tree) = (&without_blocks(ours), &without_blocks(tree));
        verdict = match (same("stetfs and e2fsck", ours, tree, all), complaint) {
            (Ok(()), None) => Some(Verdict::Alike),
            (Ok(()), Some(_)) => Some(Verdict::Superseded),
            // e2fsck repairs a damaged volume during its run.
            (Err(_), _) if wrong.is_some() => verdict,
            (Err(_), None) if verdict.is_some() && cut_commit(dirty) => Some(Verdict::CutCommit),
            (Err(_), Some(_)) if async_commit(dirty) => Some(Verdict::TornAsync),
            // Both at once: e2fsck stops earlier, and complains of an image that StetFS does not
            // need.
            (Err(_), Some(_)) if cut_commit(dirty) => Some(Verdict::CutCommit),
            (Err(why), _) => return Err(why),
        };
    }
    Ok(verdict)
}

/// Whether there is a commit block with data behind its record.
fn cut_commit(dirty: &Dirty) -> bool {
    Log::find(dirty).is_some_and(|log| {
        log.heads.iter().any(|at| {
            let block = log.read(&dirty.volume, *at);
            matches!(read_header(&block), Some((BlockType::Commit, _)))
                && block.iter().skip(commit::LEN).any(|byte| *byte != 0)
        })
    })
}

/// Whether the log ends, with async_commit, in a transaction without a commit behind it: its commit
/// block is written together with its other blocks, so it can be in the log without them.
fn torn_async(dirty: &Dirty) -> bool {
    let Some(log) = Log::find(dirty).filter(|_| async_commit(dirty)) else {
        return false;
    };
    let later = |at| {
        let header = read_header(&log.read(&dirty.volume, at));
        header.is_some_and(|(kind, tid)| kind == BlockType::Commit && tid > log.end)
    };
    !log.ring().any(later)
}

fn async_commit(dirty: &Dirty) -> bool {
    let log = Log::find(dirty);
    log.is_some_and(|log| log.sb.incompat().contains(IncompatFlags::ASYNC_COMMIT))
}

/// Whether e2fsck's only complaint about the journal is that checksums of images do not match.
fn of_images(said: &str) -> bool {
    said.contains("Invalid checksum recovering data block")
        && said
            .lines()
            .filter(|line| line.contains("JBD2:"))
            .all(|line| line.contains("recovering data block"))
}
