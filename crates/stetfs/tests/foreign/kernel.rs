//! Journals that the kernel left.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fastrand::Rng;
use stetfs::low::MemDevice;
use stetfs_block::{Log, Replay};
use stetfs_crash::peers::served::Served;
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::workload::mutate::Mutator;
use stetfs_testkit::{Image, LoopDev, LoopOptions, Mkfs, Mounter};

use super::judge::Dirty;
use super::memory::Memory;

/// The end of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file system stops, with or without a last commit.
    Stop(Shutdown),
    /// The device is copied while it is in use.
    Copy,
    /// The volume is full, and stops after a last commit.
    Full,
    /// The device takes no more writes.
    Dead,
}

const COMMITTED: End = End::Stop(Shutdown::LogFlush);
const CUT: End = End::Stop(Shutdown::NoLogFlush);

/// A kind of kernel mount that leaves a journal to be replayed.
#[derive(Clone, Debug)]
pub struct Maker {
    pub mkfs: Mkfs,
    pub options: &'static str,
    pub end: End,
    /// The journal is on another device.
    pub external: bool,
}

fn maker(block: u32, features: &[&str], options: &'static str, end: End) -> Maker {
    let journal = (block >> 10).max(1);
    let mkfs = features
        .iter()
        .fold(Mkfs::blocks(block).journal_mib(journal), |mkfs, f| {
            mkfs.feature(f)
        });
    Maker {
        mkfs,
        options,
        end,
        external: false,
    }
}

/// Mounts with every version of checksums, size of block numbers and blocks, data mode, and end.
pub fn makers() -> Vec<Maker> {
    let mut makers = vec![
        // Checksum v3.
        maker(1024, &[], "", COMMITTED),
        maker(2048, &["^64bit"], "data=journal", CUT),
        maker(4096, &[], "data=journal", COMMITTED),
        maker(4096, &["^64bit"], "data=writeback", CUT),
        maker(1024, &[], "journal_async_commit,data=writeback", COMMITTED),
        maker(1024, &[], "data=journal", End::Copy),
        maker(1024, &[], "", End::Full),
        maker(1024, &[], "", End::Dead),
        // No checksums.
        maker(1024, &["^metadata_csum"], "data=journal", COMMITTED),
        maker(2048, &["^metadata_csum", "^64bit"], "", CUT),
        maker(4096, &["^metadata_csum"], "", End::Copy),
        maker(
            1024,
            &["^metadata_csum", "^64bit"],
            "data=journal",
            End::Full,
        ),
        // Checksum v1.
        maker(1024, &["^metadata_csum"], "journal_checksum", COMMITTED),
        maker(
            1024,
            &["^metadata_csum", "^64bit"],
            "journal_checksum,data=journal",
            CUT,
        ),
        maker(
            4096,
            &["^metadata_csum"],
            "journal_checksum,data=journal",
            COMMITTED,
        ),
        maker(
            2048,
            &["^metadata_csum"],
            "journal_async_commit,data=writeback",
            COMMITTED,
        ),
        maker(
            1024,
            &["^metadata_csum"],
            "journal_checksum,data=journal",
            End::Dead,
        ),
        // Other features that change the volume.
        maker(
            1024,
            &["^extents", "^64bit", "^metadata_csum"],
            "",
            COMMITTED,
        ),
        maker(1024, &["inline_data", "orphan_file"], "", COMMITTED),
        maker(4096, &["ea_inode"], "data=journal", CUT),
    ];
    for (features, options) in [
        (&[][..], "data=journal"),
        (&["^metadata_csum"][..], "journal_checksum"),
    ] {
        makers.push(Maker {
            external: true,
            ..maker(1024, features, options, COMMITTED)
        });
    }
    // No mount has fast commits with `^extents`: Linux 6.18 hits a BUG (fs/ext4/extents.c:3230)
    // when it replays fast commits of block-mapped files, and sync(2) hangs from then on.
    makers.extend([
        maker(1024, &["fast_commit"], "", CUT),
        maker(4096, &["fast_commit"], "", CUT),
        maker(1024, &["fast_commit", "^metadata_csum", "^64bit"], "", CUT),
        maker(1024, &["fast_commit", "inline_data"], "", CUT),
        maker(4096, &["fast_commit", "orphan_file"], "", End::Copy),
    ]);
    makers
}

const SIZE: u64 = 24 << 20;

impl Maker {
    /// Whether the volume has fast commits. The kernel trusts their content too much to be tried
    /// with damaged ones.
    pub fn fast_commits(&self) -> bool {
        self.mkfs.features.iter().any(|f| f == "fast_commit")
    }

    /// Mounts, works, and ends.
    pub fn make(&self, seed: u64) -> Dirty {
        let what = format!("kernel {self:?}, seed {seed}");
        let journal = self.external.then(|| {
            let mkfs = Mkfs::blocks(1024).feature("journal_dev");
            Image::make(2 << 20, &mkfs).unwrap()
        });
        let device = journal
            .as_ref()
            .map(|j| LoopDev::attach(j.path(), LoopOptions::default()).unwrap());
        let mut mkfs = self.mkfs.clone();
        let mut options = self.options.to_owned();
        if let Some(device) = &device {
            mkfs.journal_mib = None;
            let path = device.path().display();
            mkfs.args = vec!["-J".into(), format!("device={path}")];
            options = format!("{options},journal_path={path}");
        }
        let image = Image::make(SIZE, &mkfs).unwrap();
        // With little more space than the image takes, writes to blocks that were never written
        // fail.
        let room = if self.end == End::Dead { 4 } else { 64 };
        let memory = Memory::new(room);
        let path = &memory.copy(&image);
        let mounted = Mounter::ext4(&options)
            .mount(path)
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        let worked = work(mounted.path(), seed, self);
        if self.end != End::Dead {
            worked.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        if self.end == End::Copy {
            let dirty = Dirty::of(what, path);
            mounted.umount().unwrap();
            return dirty;
        }
        let orphan = orphan(mounted.path());
        let how = match self.end {
            End::Stop(how) => how,
            _ => Shutdown::LogFlush,
        };
        mounted
            .crash_with(how, || drop(orphan))
            .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        drop(device);
        Dirty {
            journal: journal.map(|j| MemDevice::load(j.path()).unwrap()),
            ..Dirty::of(what, path)
        }
    }
}

/// A mount on a recorded device, for the states that power cuts can leave.
pub struct Recording {
    what: String,
    base: MemDevice,
    log: Log,
}

impl Recording {
    /// Records a mount of a random kind.
    pub fn new(seed: u64) -> Recording {
        let mut rng = Rng::with_seed(seed);
        let mut makers = makers();
        makers.retain(|m| {
            !m.external && !m.fast_commits() && !matches!(m.end, End::Full | End::Dead)
        });
        let maker = makers.swap_remove(rng.usize(..makers.len()));
        let what = format!("power cut under kernel {maker:?}, seed {seed}");
        let image = Image::make(SIZE, &maker.mkfs).unwrap();
        let base = MemDevice::load(image.path()).unwrap();
        let log = Served::record(&base, |file, _| {
            let mounted = Mounter::ext4(maker.options).mount(file)?;
            work(mounted.path(), seed, &maker).map_err(std::io::Error::other)?;
            mounted.umount()
        })
        .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        Recording { what, base, log }
    }

    /// A state that a cut can leave: after one of the requests, with any of the sectors that were
    /// not yet durable.
    pub fn cut(&self, rng: &mut Rng) -> Dirty {
        let mut replay = Replay::new(&self.base, &self.log);
        let event = rng.usize(self.log.len() / 10..=self.log.len());
        replay.advance_to(event);
        let odds = rng.u8(0..5);
        // A request of 512 bytes or of a block more often arrives whole.
        let whole = rng.bool();
        let mut fates = HashMap::new();
        let volume = replay.crash(|sector| {
            let mut fate = || rng.u8(0..4) < odds;
            match whole {
                true => *fates.entry(sector.id).or_insert_with(fate),
                false => fate(),
            }
        });
        Dirty {
            what: format!("{}, event {event} of {}", self.what, self.log.len()),
            volume,
            journal: None,
        }
    }
}

/// Fills the journal with everything that it can hold; a small ring wraps once.
fn work(root: &Path, seed: u64, maker: &Maker) -> Result<(), String> {
    let said = |e| format!("{e:#}");
    let dir = root.join("work");
    fs::create_dir(&dir).map_err(|e| e.to_string())?;
    let mut work = Mutator::new(seed);
    if maker.mkfs.features.iter().any(|f| f == "^extents") {
        work = work.without_preallocation();
    }
    work.run(&dir, 150).map_err(said)?;
    work.sync_and_mark(&dir).map_err(said)?;
    revokes(root).map_err(|e| e.to_string())?;
    escapes(root).map_err(|e| e.to_string())?;
    work.run(&dir, 60).map_err(said)?;
    if matches!(maker.end, End::Full | End::Dead) {
        fill(root);
    }
    if maker.end != End::Full {
        work.run(&dir, 20).map_err(said)?;
        let last = File::create(root.join("synced-last")).map_err(|e| e.to_string())?;
        last.sync_all().map_err(|e| e.to_string())?;
        work.run(&dir, 10).map_err(said)?;
    }
    Ok(())
}

/// Directory blocks that are freed and reused for data.
fn revokes(root: &Path) -> std::io::Result<()> {
    let dir = root.join("short-lived");
    fs::create_dir(&dir)?;
    for i in 0..200 {
        fs::write(dir.join(format!("{i}-{}", "n".repeat(100))), "")?;
    }
    File::open(&dir)?.sync_all()?;
    fs::remove_dir_all(&dir)?;
    let mut file = File::create(root.join("reuses-the-blocks"))?;
    file.write_all(&[0xEE; 200_000])?;
    file.sync_all()
}

/// Blocks that look like blocks of the journal.
fn escapes(root: &Path) -> std::io::Result<()> {
    let file = File::create(root.join("escaped"))?;
    for i in 0..60u32 {
        let mut head = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2, 0, 0, 0, 0];
        head[11] = i as u8;
        file.write_all_at(&head, u64::from(i) * 1024)?;
    }
    file.sync_all()
}

/// An unlinked open file, if there is space for one.
fn orphan(root: &Path) -> Option<File> {
    let path = root.join("orphan");
    let mut file = File::create(&path).ok()?;
    file.write_all(&[5; 50_000]).ok()?;
    let _ = file.sync_all();
    fs::remove_file(&path).ok()?;
    Some(file)
}

/// Writes and syncs until the file system accepts no more.
fn fill(root: &Path) {
    for i in 0..2000 {
        let Ok(mut file) = File::create(root.join(format!("fill{i}"))) else {
            return;
        };
        if file
            .write_all(&[i as u8; 40_000])
            .and_then(|()| file.sync_all())
            .is_err()
        {
            return;
        }
    }
}
