//! Records are applied to any older state that a crash leaves (replay.A3): flags, fullness and
//! limits of that state do not prevent the recovery of an acknowledged change.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use stetfs_block::MemDevice;
use stetfs_journal::Canary;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_testkit::Mkfs;

use super::cut_replay_tests::cut_replay;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{fsck, fsync, mkfs};
use crate::types::{Ctx, FallocateMode, FsOptions, Ino, ROOT_INO};

pub(super) const WITH_RECORDS: [&str; 4] =
    ["ijournal", "stet", "ordered,records=1", "data,records=1"];
const LOCKS: [InodeFlags; 2] = [InodeFlags::IMMUTABLE, InodeFlags::APPEND];

/// A volume whose transactions commit only when a test requests it.
pub(super) struct Volume {
    pub(super) device: Arc<MemDevice>,
    pub(super) fs: Arc<Fs>,
}

impl Volume {
    pub(super) fn new(journal: &str, mib: u64, mkfs_options: &Mkfs) -> Volume {
        Volume::with(journal, mib, mkfs_options, Canary::default())
    }

    fn with(journal: &str, mib: u64, mkfs_options: &Mkfs, canary: Canary) -> Volume {
        let device = mkfs(mib, mkfs_options);
        let opts = FsOptions {
            commit_secs: 3600,
            dirty_expire: Duration::from_secs(3600),
            journal: journal.parse().unwrap(),
            canary,
            ..FsOptions::default()
        };
        let fs = Fs::open(device.clone(), opts).unwrap();
        Volume { device, fs }
    }

    pub(super) fn make(&self, dir: Ino, name: &str) -> OpenRef {
        let made = self
            .fs
            .create(&Ctx::ROOT, dir, name.as_bytes(), 0o600, 0, libc::O_RDWR);
        let (attr, file) = made.unwrap();
        self.fs.forget(attr.ino, 1);
        file
    }

    pub(super) fn mkdir(&self, dir: Ino, name: &str) -> Ino {
        let made = self.fs.mkdir(&Ctx::ROOT, dir, name.as_bytes(), 0o700, 0);
        let ino = made.unwrap().ino;
        self.fs.forget(ino, 1);
        ino
    }

    fn lock(&self, ino: Ino, flags: InodeFlags) {
        self.fs.set_flags(&Ctx::ROOT, ino, flags.bits()).unwrap();
    }

    fn unlock(&self, ino: Ino) {
        let flags = self.fs.get_flags(ino).unwrap();
        let flags = InodeFlags::from_bits_retain(flags) - LOCKS[0] - LOCKS[1];
        self.lock(ino, flags);
    }

    pub(super) fn write(&self, file: &OpenRef, text: &[u8]) {
        self.fs.write(&Ctx::ROOT, file, 0, text, false).unwrap();
    }

    pub(super) fn commit(&self) {
        self.fs.vol.journal.commit_all().unwrap();
    }

    /// Number of file syncs by commit although files have records.
    pub(super) fn file_commits(&self) -> u64 {
        self.fs.data.sync_reasons().iter().map(|(_, n)| n).sum()
    }

    /// Whether a recovery that applies records as operations of a user fails.
    fn refuses_a_user(&self) -> bool {
        let canary = Canary {
            redo_as_user: true,
            ..Canary::default()
        };
        let opts = FsOptions {
            canary,
            ..FsOptions::default()
        };
        Fs::open(Arc::new(self.device.fork()), opts).is_err()
    }

    /// The volume after a power cut now. Recovery refuses nothing, and e2fsck finds nothing.
    fn cut(&self) -> Arc<Fs> {
        let crashed = Arc::new(self.device.fork());
        let fs = Fs::open(crashed.clone(), FsOptions::default()).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        fsck(&crashed);
        Fs::open(crashed, FsOptions::default()).unwrap()
    }
}

/// The content of a file.
pub(super) fn content(fs: &Arc<Fs>, path: &[&str]) -> Vec<u8> {
    let ino = path.iter().fold(ROOT_INO, |dir, name| {
        fs.lookup(dir, name.as_bytes()).unwrap().ino
    });
    let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
    let size = fs.attr(&file.inode).unwrap().size;
    let mut data = vec![0; usize::try_from(size).unwrap()];
    let n = fs.read(&file, 0, &mut data).unwrap();
    assert_eq!(n, data.len());
    data
}

/// A directory was locked at the last commit. It is unlocked, and a file is made in it and synced.
#[test]
fn a_file_made_in_a_directory_that_was_locked_comes_back() {
    for journal in WITH_RECORDS {
        for flag in LOCKS {
            let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
            let dir = v.mkdir(ROOT_INO, "dir");
            v.lock(dir, flag);
            v.commit();
            v.unlock(dir);
            let file = v.make(dir, "file");
            v.write(&file, b"synced");
            fsync(&v.fs, &file, false);
            assert_eq!(
                v.file_commits(),
                0,
                "{journal}: the record is what is tested"
            );
            assert!(v.refuses_a_user(), "{journal} {flag:?}");
            assert_eq!(
                content(&v.cut(), &["dir", "file"]),
                b"synced",
                "{journal} {flag:?}"
            );
        }
    }
}

/// A file, or its directory, was locked at the last commit; a new file took its name (as in the
/// rotation of a log).
#[test]
fn a_file_that_replaces_a_locked_one_comes_back() {
    for journal in WITH_RECORDS {
        for (flag, of_dir) in LOCKS.iter().flat_map(|f| [(*f, false), (*f, true)]) {
            let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
            let dir = v.mkdir(ROOT_INO, "dir");
            let old = v.make(dir, "log");
            v.write(&old, b"old");
            let locked = if of_dir { dir } else { old.inode.ino };
            v.lock(locked, flag);
            v.commit();
            v.unlock(locked);
            drop(old);
            v.fs.unlink(&Ctx::ROOT, dir, b"log").unwrap();
            let new = v.make(dir, "log");
            v.write(&new, b"new");
            fsync(&v.fs, &new, false);
            assert_eq!(
                v.file_commits(),
                0,
                "{journal}: the record is what is tested"
            );
            assert!(v.refuses_a_user(), "{journal} {flag:?}");
            let what = format!("{journal} {flag:?} of the directory: {of_dir}");
            assert_eq!(content(&v.cut(), &["dir", "log"]), b"new", "{what}");
        }
    }
}

/// The record makes a directory that is locked already.
#[test]
fn a_file_in_a_new_directory_that_is_locked_comes_back() {
    for journal in WITH_RECORDS {
        for flag in LOCKS {
            let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
            v.commit();
            let dir = v.mkdir(ROOT_INO, "dir");
            let file = v.make(dir, "file");
            v.write(&file, b"synced");
            v.lock(dir, flag);
            fsync(&v.fs, &file, false);
            assert_eq!(
                v.file_commits(),
                0,
                "{journal}: the record is what is tested"
            );
            assert!(v.refuses_a_user(), "{journal} {flag:?}");
            let again = v.cut();
            assert_eq!(
                content(&again, &["dir", "file"]),
                b"synced",
                "{journal} {flag:?}"
            );
            let dir = again.lookup(ROOT_INO, b"dir").unwrap().ino;
            let flags = InodeFlags::from_bits_retain(again.get_flags(dir).unwrap());
            assert!(flags.contains(flag), "{journal}: the lock is back, too");
        }
    }
}

/// Fills the volume to its last block, root's reserve included.
fn fill(v: &Volume) -> OpenRef {
    let file = v.make(ROOT_INO, "filler");
    let mut at = 0;
    for size in [1 << 20, 64 << 10, 4096, 1024] {
        while v
            .fs
            .write(&Ctx::ROOT, &file, at, &vec![7; size], false)
            .is_ok_and(|n| n == size)
        {
            at += size as u64;
        }
    }
    file
}

const DIRS: usize = 6;

/// Commits directories whose only block is full of names. Removes the names, puts others in their
/// place and syncs these. Returns their paths.
fn fill_directories_anew(v: &Volume, block: u32, spare: usize) -> Vec<[String; 2]> {
    let name = |kind: &str, i: u32| format!("{kind}{i:03}{}", "x".repeat(200));
    let names = block / 220;
    let dir_names = (0..DIRS).map(|i| format!("dir{i}"));
    let dirs: Vec<(String, Ino)> = dir_names
        .map(|n| (n.clone(), v.mkdir(ROOT_INO, &n)))
        .collect();
    for (_, dir) in &dirs {
        (0..names).for_each(|i| drop(v.make(*dir, &name("old", i))));
    }
    // The space of the files that are synced later, bytes.
    let last = v.make(ROOT_INO, "last");
    v.write(&last, &vec![1; spare]);
    drop(fill(v));
    v.commit();
    drop(last);
    v.fs.unlink(&Ctx::ROOT, ROOT_INO, b"last").unwrap();
    v.commit();
    let mut synced = Vec::new();
    for (dir_name, dir) in dirs {
        for i in 0..names {
            v.fs.unlink(&Ctx::ROOT, dir, name("old", i).as_bytes())
                .unwrap();
        }
        for i in 0..names {
            let file = v.make(dir, &name("new", i));
            v.write(&file, b"synced");
            fsync(&v.fs, &file, false);
            synced.push([dir_name.clone(), name("new", i)]);
        }
    }
    synced
}

/// Takes all remaining space, and syncs it: unsynced space is free after a crash.
fn take_the_rest(v: &Volume) {
    let end = v.make(ROOT_INO, "end");
    let mut at = 0;
    while v.fs.write(&Ctx::ROOT, &end, at, &[9; 1024], false).is_ok() {
        at += 1024;
        // Never more than a record holds, where data is in the record.
        if at % (16 << 10) == 0 {
            fsync(&v.fs, &end, false);
        }
    }
    fsync(&v.fs, &end, false);
}

/// With block maps, no clusters are kept for the volume itself, so it can be filled to the last
/// block.
fn fillable(block: u32, features: &str) -> Mkfs {
    let mut mkfs = Mkfs::blocks(block).feature(features);
    mkfs.args.extend(["-m".into(), "0".into()]);
    mkfs
}

#[test]
fn directories_that_had_no_room_take_the_names_on_a_full_volume() {
    for journal in WITH_RECORDS {
        for (block, features) in [
            (1024, "extents"),
            (4096, "extents"),
            (1024, "^extents,^64bit"),
        ] {
            let v = Volume::new(journal, 32, &fillable(block, features));
            let synced = fill_directories_anew(&v, block, 1 << 20);
            take_the_rest(&v);
            let again = v.cut();
            for [dir, new] in synced {
                assert_eq!(
                    content(&again, &[&dir, &new]),
                    b"synced",
                    "{journal} {features}"
                );
            }
        }
    }
}

/// Without the promise other files get the blocks. The synced files are not lost all the same.
#[test]
fn records_without_their_promise_are_kept_in_lost_found() {
    for journal in WITH_RECORDS {
        let canary = Canary {
            redo_unpromised: true,
            ..Canary::default()
        };
        let v = Volume::with(journal, 32, &fillable(1024, "^extents,^64bit"), canary);
        let synced = fill_directories_anew(&v, 1024, 128 << 10);
        take_the_rest(&v);
        assert_eq!(v.file_commits(), 0, "{journal}");
        let again = v.cut();
        let is_there = |[dir, name]: &&[String; 2]| {
            let dir = again.lookup(ROOT_INO, dir.as_bytes()).unwrap().ino;
            again.lookup(dir, name.as_bytes()).is_ok()
        };
        let by_name = synced.iter().filter(is_there).count();
        let lost_found = again.lookup(ROOT_INO, b"lost+found").unwrap().ino;
        let is_kept = |ino: &u32| {
            again
                .lookup(lost_found, format!("#{ino}").as_bytes())
                .is_ok()
        };
        let kept = (11..v.fs.vol.geo.inodes_count).filter(is_kept).count();
        assert!(kept > 0, "{journal}: that is what the promise is for");
        assert_eq!(by_name + kept, synced.len(), "{journal}");
    }
}

/// Promises end with their records, however much room there is.
#[test]
fn promises_of_superseded_records_are_not_remembered() {
    for journal in WITH_RECORDS {
        let v = Volume::new(journal, 32, &Mkfs::blocks(4096));
        let sync = |i: u32| {
            let file = v.make(ROOT_INO, &format!("{i}"));
            v.write(&file, b"synced");
            fsync(&v.fs, &file, false);
            v.fs.space.promised_to_records()
        };
        let one = sync(0);
        assert!(one > 0, "{journal}");
        for i in 1..10 {
            v.commit();
            assert_eq!(sync(i), one, "{journal}: that of the last record alone");
        }
        assert_eq!(v.file_commits(), 0, "{journal}");
    }
}

/// All inodes of the volume are in use except the one that the synced file got.
#[test]
fn a_file_that_took_the_last_inode_comes_back() {
    for journal in WITH_RECORDS {
        let mut mkfs = Mkfs::blocks(1024);
        mkfs.args.extend(["-N".into(), "64".into()]);
        let v = Volume::new(journal, 32, &mkfs);
        let make = |i: u32| {
            let name = format!("{i}");
            v.fs.mknod(&Ctx::ROOT, ROOT_INO, name.as_bytes(), 0o600, 0, 0)
        };
        let made: Vec<Ino> = (0..).map_while(|i| Some(make(i).ok()?.ino)).collect();
        made.iter().for_each(|ino| v.fs.forget(*ino, 1));
        v.fs.unlink(&Ctx::ROOT, ROOT_INO, b"0").unwrap();
        v.commit();
        let file = v.make(ROOT_INO, "file");
        v.write(&file, b"synced");
        fsync(&v.fs, &file, false);
        assert_eq!(
            v.file_commits(),
            0,
            "{journal}: the record is what is tested"
        );
        assert_eq!(v.fs.space.free_inodes_count(), 0);
        assert_eq!(content(&v.cut(), &["file"]), b"synced", "{journal}");
    }
}

/// A file gets no record if its directory may have had the largest number of subdirectories, or the
/// deepest index.
#[test]
fn names_that_a_recovery_might_have_no_room_for_are_left_to_a_commit() {
    for (links, blocks, is_left) in [(2, 1, false), (64_500, 1, true), (2, 5000, true)] {
        let v = Volume::new("ijournal", 32, &Mkfs::blocks(1024));
        let dir = v.mkdir(ROOT_INO, "dir");
        v.commit();
        {
            let inode = v.fs.inodes.iget(dir).unwrap();
            let mut body = inode.body.write();
            body.set_links(links);
            body.set_size(blocks * 1024);
        }
        let inode = v.fs.inodes.iget(dir).unwrap();
        let has_room = v.fs.data.redo_has_room(&inode.body.read());
        assert_eq!(has_room, !is_left, "{links} links, {blocks} blocks");
    }
}

/// Directories and files of a random run, with its random numbers.
struct Random<'a> {
    v: &'a Volume,
    draw: fastrand::Rng,
    dirs: Vec<Ino>,
    /// Directory, name, file.
    files: Vec<(Ino, String, OpenRef)>,
    /// Number of names so far.
    made: u32,
}

impl Random<'_> {
    fn dir(&mut self) -> Ino {
        self.dirs[self.draw.usize(..self.dirs.len())]
    }

    /// A random change. An error of the volume is allowed.
    fn change(&mut self) {
        let fs = &self.v.fs;
        let dir = self.dir();
        let at = self.draw.usize(..self.files.len().max(1));
        match (self.draw.u32(..100), self.files.get(at)) {
            (0..25, _) | (_, None) => {
                self.made += 1;
                let name = format!("{}{}", self.made, "n".repeat(self.draw.usize(..200)));
                let made = fs.create(&Ctx::ROOT, dir, name.as_bytes(), 0o600, 0, libc::O_RDWR);
                if let Ok((attr, file)) = made {
                    fs.forget(attr.ino, 1);
                    self.files.push((dir, name, file));
                }
            }
            (25..32, _) => {
                self.made += 1;
                let name = format!("d{}", self.made);
                if let Ok(attr) = fs.mkdir(&Ctx::ROOT, dir, name.as_bytes(), 0o700, 0) {
                    fs.forget(attr.ino, 1);
                    self.dirs.push(attr.ino);
                }
            }
            (32..45, Some((dir, name, _))) => {
                let (dir, name) = (*dir, name.clone());
                if fs.unlink(&Ctx::ROOT, dir, name.as_bytes()).is_ok() {
                    self.files.swap_remove(at);
                    // Another file takes its name.
                    if self.draw.bool() {
                        let made =
                            fs.create(&Ctx::ROOT, dir, name.as_bytes(), 0o600, 0, libc::O_RDWR);
                        if let Ok((attr, file)) = made {
                            fs.forget(attr.ino, 1);
                            self.files.push((dir, name, file));
                        }
                    }
                }
            }
            (45..60, _) => {
                let locks = [
                    InodeFlags::IMMUTABLE,
                    InodeFlags::APPEND,
                    InodeFlags::empty(),
                ];
                let lock = locks[self.draw.usize(..3)];
                let ino = match self.files.get(at) {
                    Some((.., file)) if self.draw.bool() => file.inode.ino,
                    _ => dir,
                };
                let flags = InodeFlags::from_bits_retain(fs.get_flags(ino).unwrap());
                let flags = (flags - LOCKS[0] - LOCKS[1]) | lock;
                let _ = fs.set_flags(&Ctx::ROOT, ino, flags.bits());
            }
            (60..64, Some((.., file))) => {
                let mode = FallocateMode::PunchHole;
                let at = self.draw.u64(..60_000);
                let _ = fs.fallocate(&Ctx::ROOT, file, mode, at, self.draw.u64(1..30_000));
            }
            (64..68, Some((.., file))) => {
                let keep_size = self.draw.bool();
                let mode = FallocateMode::Allocate { keep_size };
                let at = self.draw.u64(..60_000);
                let _ = fs.fallocate(&Ctx::ROOT, file, mode, at, self.draw.u64(1..30_000));
            }
            (68..71, _) => self.v.commit(),
            (_, Some((.., file))) => {
                let text = vec![self.draw.u8(..); self.draw.usize(1..9000)];
                let at = self.draw.u64(..100_000);
                let _ = fs.write(&Ctx::ROOT, file, at, &text, false);
            }
        }
    }

    /// Syncs a file, cuts the power, sometimes cuts the recovery, too, and looks for the file.
    fn sync(&mut self) {
        let Some((.., file)) = self.files.get(self.draw.usize(..self.files.len().max(1))) else {
            return;
        };
        fsync(&self.v.fs, file, false);
        let mut crashed = Arc::new(self.v.device.fork());
        while self.draw.u32(..3) == 0 {
            let cut = cut_replay(&crashed, self.draw.u64(..60));
            crashed = cut.unwrap_or(crashed);
        }
        let again = Fs::open(crashed.clone(), FsOptions::default()).unwrap();
        let there = again
            .open_inode(&Ctx::ROOT, file.inode.ino, libc::O_RDONLY)
            .unwrap();
        assert_eq!(all(&again, &there), all(&self.v.fs, file));
        if self.draw.u32(..8) == 0 {
            again.unmount().unwrap();
            fsck(&crashed);
        }
    }
}

fn all(fs: &Arc<Fs>, file: &OpenRef) -> Vec<u8> {
    let size = fs.attr(&file.inode).unwrap().size;
    let mut data = vec![0; usize::try_from(size).unwrap()];
    let n = fs.read(file, 0, &mut data).unwrap();
    assert_eq!(n, data.len());
    data
}

/// Random changes on small volumes that are partly full and locked: each synced file exists after a
/// power cut right after the sync.
#[test]
fn what_is_synced_on_a_volume_in_any_state_comes_back() {
    let seeds = std::env::var("STETFS_REDO_SEEDS").map_or(6, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let mut draw = fastrand::Rng::with_seed(seed);
        let journal = WITH_RECORDS[draw.usize(..WITH_RECORDS.len())];
        let features = ["extents", "^extents,^64bit", "inline_data"][draw.usize(..3)];
        let block = [1024, 4096][draw.usize(..2)];
        eprintln!("seed {seed}: {journal} {block} {features}");
        let v = Volume::new(journal, 32, &fillable(block, features));
        if draw.u32(..4) > 0 {
            drop(fill(&v));
            v.commit();
            // Room for a few changes.
            let filler = v.fs.lookup(ROOT_INO, b"filler").unwrap();
            let file =
                v.fs.open_inode(&Ctx::ROOT, filler.ino, libc::O_RDWR)
                    .unwrap();
            let room = draw.u64(..400) * 1024;
            let mode = FallocateMode::PunchHole;
            v.fs.fallocate(&Ctx::ROOT, &file, mode, 1 << 20, room + 1024)
                .unwrap();
            v.commit();
        }
        let mut run = Random {
            v: &v,
            draw,
            dirs: vec![ROOT_INO],
            files: Vec::new(),
            made: 0,
        };
        for _ in 0..150 {
            run.change();
            if run.draw.u32(..5) == 0 {
                run.sync();
            }
        }
    }
}
