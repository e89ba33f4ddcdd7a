//! Migration of maps: the content of the file stays, whatever happens afterwards.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ondisk::ext4::blockmap::{DIRECT, pointer};
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_testkit::Mkfs;

use crate::error::FsError;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{fsck, fsync, mkfs};
use crate::types::{Ctx, FallocateMode, FsOptions, Ino, ROOT_INO};

const EXTENTS: u32 = InodeFlags::EXTENTS.bits();
const PRESETS: [&str; 5] = ["ordered", "data", "ijournal", "ordered,records=1", "stet"];
/// Number of blocks in a file with a hole behind each block.
const SCATTERED: u32 = 700;

fn open(device: &Arc<MemDevice>, journal: &str) -> Arc<Fs> {
    let opts = FsOptions {
        journal: journal.parse().unwrap(),
        commit_secs: 3600,
        dirty_expire: std::time::Duration::from_secs(3600),
        ..FsOptions::default()
    };
    Fs::open(device.clone(), opts).unwrap()
}

fn create(fs: &Fs, name: &[u8]) -> OpenRef {
    let made = fs.create(&Ctx::ROOT, ROOT_INO, name, 0o644, 0, libc::O_RDWR);
    made.unwrap().1
}

fn find(fs: &Fs, name: &[u8]) -> OpenRef {
    let ino = fs.lookup(ROOT_INO, name).unwrap().ino;
    fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap()
}

fn write(fs: &Fs, file: &OpenRef, lblk: u64, value: u8) {
    let bs = fs.statfs().block_size as usize;
    let at = lblk * bs as u64;
    let n = fs.write(&Ctx::ROOT, file, at, &vec![value; bs], false);
    assert_eq!(n.unwrap(), bs);
}

fn set(fs: &Fs, ino: Ino, extents: bool) -> Result<(), FsError> {
    let flags = fs.get_flags(ino).unwrap() & !EXTENTS;
    fs.set_flags(&Ctx::ROOT, ino, flags | if extents { EXTENTS } else { 0 })
}

fn has_extents(fs: &Fs, ino: Ino) -> bool {
    fs.get_flags(ino).unwrap() & EXTENTS != 0
}

#[track_caller]
fn refused(result: Result<(), FsError>, errno: i32) {
    match result {
        Err(e) => assert_eq!(e.errno(), errno, "{e}"),
        Ok(()) => panic!("not refused with {errno}"),
    }
}

/// The mapped blocks of a file, each with its content.
fn content(fs: &Fs, file: &OpenRef) -> Vec<(u32, u8)> {
    let bs = fs.statfs().block_size as usize;
    let body = file.inode.body.read();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(e) = fs.data.next_extent(&file.inode, &body, at).unwrap() {
        all.extend(e.block..e.block + e.len);
        at = e.logical_end();
    }
    drop(body);
    let mut bytes = vec![0; bs];
    let value = |lblk: u32| {
        let n = fs.read(file, u64::from(lblk) * bs as u64, &mut bytes);
        let n = n.unwrap();
        assert!(bytes[..n].iter().all(|b| *b == bytes[0]), "block {lblk}");
        (lblk, bytes[0])
    };
    all.into_iter().map(value).collect()
}

fn mapped(file: &OpenRef, fs: &Fs) -> Vec<(u32, u64)> {
    let body = file.inode.body.read();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(e) = fs.data.next_extent(&file.inode, &body, at).unwrap() {
        all.extend((e.block..e.block + e.len).zip(e.start..));
        at = e.logical_end();
    }
    all
}

/// Sets of file blocks that are written, in this order.
fn shapes() -> Vec<(&'static str, Vec<u32>)> {
    vec![
        ("empty", vec![]),
        ("direct", (0..12).collect()),
        ("hole before", vec![5, 6]),
        ("indirect", (0..20).collect()),
        ("backwards", (0..20).rev().collect()),
        ("five pieces", vec![0, 2, 4, 6, 8]),
        ("scattered", (0..SCATTERED).map(|i| i * 2).collect()),
        ("far apart", vec![3, 11, 13, 300, 5000, 70_000, 1_200_000]),
    ]
}

/// A file with this name and a block map.
fn block_mapped(fs: &Fs, name: &[u8], blocks: &[u32]) -> OpenRef {
    let file = create(fs, name);
    set(fs, file.ino(), false).unwrap();
    assert!(!has_extents(fs, file.ino()));
    for (i, lblk) in blocks.iter().enumerate() {
        write(fs, &file, u64::from(*lblk), i as u8 | 1);
    }
    file
}

/// Block maps of all shapes become trees, with all blocks at their places: now, after a crash
/// before and after a commit, and after a clean unmount.
fn becomes_a_tree(base: &MemDevice, journal: &str) {
    let device = Arc::new(base.fork());
    let fs = open(&device, journal);
    let all = shapes();
    let files: Vec<OpenRef> = all
        .iter()
        .map(|(name, blocks)| block_mapped(&fs, name.as_bytes(), blocks))
        .collect();
    fs.vol.journal.commit_all().unwrap();
    let was: Vec<_> = files
        .iter()
        .map(|f| (content(&fs, f), mapped(f, &fs)))
        .collect();
    for ((file, was), (name, _)) in files.iter().zip(&was).zip(&all) {
        set(&fs, file.ino(), true).unwrap();
        assert!(has_extents(&fs, file.ino()), "{name}");
        assert_eq!((content(&fs, file), mapped(file, &fs)), *was, "{name}");
    }
    let check = |device: &Arc<MemDevice>, form: bool| {
        let fs = open(device, "ordered");
        for ((name, _), (was, _)) in all.iter().zip(&was) {
            let file = find(&fs, name.as_bytes());
            assert_eq!(content(&fs, &file), *was, "{journal}, {name}");
            assert_eq!(has_extents(&fs, file.ino()), form, "{journal}, {name}");
        }
        fs.unmount().unwrap();
        fsck(device);
    };
    check(&Arc::new(device.fork()), false);
    fs.vol.journal.commit_all().unwrap();
    check(&Arc::new(device.fork()), true);
    drop(files);
    fs.unmount().unwrap();
    fsck(&device);
    check(&device, true);
}

#[test]
fn block_maps_become_extents() {
    for (bytes, features) in [(1024, ""), (4096, "^metadata_csum"), (4096, "quota")] {
        let mut mkfs_options = Mkfs::blocks(bytes);
        if !features.is_empty() {
            mkfs_options = mkfs_options.feature(features);
        }
        let base = mkfs(48, &mkfs_options);
        for journal in PRESETS {
            becomes_a_tree(&base, journal);
        }
    }
}

#[test]
fn one_short_extent_becomes_block_numbers_and_no_other() {
    let base = mkfs(32, &Mkfs::blocks(4096));
    for journal in PRESETS {
        let device = Arc::new(base.fork());
        let fs = open(&device, journal);
        for (name, blocks) in shapes() {
            let file = create(&fs, name.as_bytes());
            for lblk in &blocks {
                write(&fs, &file, u64::from(*lblk), *lblk as u8 | 1);
            }
            let was = (content(&fs, &file), mapped(&file, &fs));
            let fits = blocks.last().is_none_or(|last| *last < 12)
                && blocks.windows(2).all(|w| w[1] == w[0] + 1);
            match fits {
                true => set(&fs, file.ino(), false).unwrap(),
                false => refused(set(&fs, file.ino(), false), libc::EOPNOTSUPP),
            }
            assert_eq!(has_extents(&fs, file.ino()), !fits, "{name}");
            assert_eq!((content(&fs, &file), mapped(&file, &fs)), was, "{name}");
        }
        let file = create(&fs, b"unwritten");
        let keep = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&Ctx::ROOT, &file, keep, 0, 8192).unwrap();
        refused(set(&fs, file.ino(), false), libc::EOPNOTSUPP);
        drop(file);
        fs.vol.journal.commit_all().unwrap();
        let crashed = Arc::new(device.fork());
        let again = open(&crashed, "ordered");
        let file = find(&again, b"hole before");
        assert!(!has_extents(&again, file.ino()));
        assert_eq!(content(&again, &file), [(5, 5), (6, 7)]);
        drop(file);
        again.unmount().unwrap();
        fsck(&crashed);
        fs.unmount().unwrap();
        fsck(&device);
    }
}

/// Checks a file after a crash that was synced after a migration: records are applied to the
/// durable kind of map.
fn synced_after(journal: &str, extents: bool) {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device, journal);
    let file = match extents {
        true => block_mapped(&fs, b"file", &[0, 2, 30]),
        false => create(&fs, b"file"),
    };
    fs.vol.journal.commit_all().unwrap();
    // A record from before the migration.
    write(&fs, &file, 0, 9);
    fsync(&fs, &file, false);
    set(&fs, file.ino(), extents).unwrap();
    if extents {
        let keep = FallocateMode::Allocate { keep_size: false };
        fs.fallocate(&Ctx::ROOT, &file, keep, 40 * 4096, 8192)
            .unwrap();
    }
    for lblk in [1, 14, 2000] {
        write(&fs, &file, lblk, 7);
    }
    fsync(&fs, &file, true);
    let first = content(&fs, &file);
    let crashed = [Arc::new(device.fork())];
    write(&fs, &file, 3, 8);
    fsync(&fs, &file, false);
    let second = content(&fs, &file);
    let crashed = crashed.into_iter().chain([Arc::new(device.fork())]);
    for (device, was) in crashed.zip([first, second]) {
        let again = open(&device, "ordered");
        let file = find(&again, b"file");
        assert_eq!(content(&again, &file), was, "{journal}");
        assert_eq!(has_extents(&again, file.ino()), extents, "{journal}");
        drop(file);
        again.unmount().unwrap();
        fsck(&device);
    }
}

#[test]
fn a_file_that_is_synced_after_its_map_changed_has_both() {
    for journal in PRESETS {
        for extents in [true, false] {
            synced_after(journal, extents);
        }
    }
}

#[test]
fn a_sync_after_a_change_of_form_is_a_commit_and_the_next_a_record() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device, "ordered,records=1");
    let file = create(&fs, b"file");
    write(&fs, &file, 0, 1);
    fs.vol.journal.commit_all().unwrap();
    let commits_for_maps = || {
        let reasons = fs.data.sync_reasons();
        reasons.iter().find(|(name, _)| *name == "map").unwrap().1
    };
    set(&fs, file.ino(), false).unwrap();
    fsync(&fs, &file, true);
    assert_eq!(commits_for_maps(), 1);
    write(&fs, &file, 1, 2);
    fsync(&fs, &file, true);
    assert_eq!(commits_for_maps(), 1);
}

/// Dirty data is written back to its place after a migration in either direction.
#[test]
fn dirty_data_stays_dirty() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device, "ordered");
    let file = create(&fs, b"file");
    for lblk in 0..8 {
        write(&fs, &file, lblk, 3);
    }
    for extents in [false, true, false] {
        set(&fs, file.ino(), extents).unwrap();
        write(&fs, &file, u64::from(extents), 4);
    }
    assert!(fs.data.state.dirty_bytes() > 0);
    fsync(&fs, &file, true);
    let crashed = Arc::new(device.fork());
    let again = open(&crashed, "ordered");
    let values: Vec<u8> = content(&again, &find(&again, b"file"))
        .iter()
        .map(|(_, value)| *value)
        .collect();
    assert_eq!(values, [4, 4, 3, 3, 3, 3, 3, 3]);
    again.unmount().unwrap();
    fsck(&crashed);
}

#[test]
fn directories_change_their_form_too() {
    for journal in ["ordered", "stet"] {
        let device = mkfs(32, &Mkfs::blocks(1024));
        let fs = open(&device, journal);
        let dir = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0).unwrap();
        set(&fs, dir.ino, false).unwrap();
        let name = |i: u32| format!("{i:0100}");
        let make = |range: std::ops::Range<u32>| {
            for i in range {
                let name = name(i);
                fs.mkdir(&Ctx::ROOT, dir.ino, name.as_bytes(), 0o755, 0)
                    .unwrap();
            }
        };
        make(0..300);
        assert!(!has_extents(&fs, dir.ino));
        set(&fs, dir.ino, true).unwrap();
        make(300..400);
        refused(set(&fs, dir.ino, false), libc::EOPNOTSUPP);
        fs.vol.journal.commit_all().unwrap();
        let crashed = Arc::new(device.fork());
        let again = open(&crashed, "ordered");
        let dir = again.lookup(ROOT_INO, b"dir").unwrap().ino;
        assert!(has_extents(&again, dir));
        for i in 0..400 {
            again.lookup(dir, name(i).as_bytes()).unwrap();
        }
        again.unmount().unwrap();
        fsck(&crashed);
    }
}

#[test]
fn what_cannot_be_leaves_the_file_as_it_was() {
    let device = mkfs(32, &Mkfs::blocks(4096).feature("^extents,^64bit"));
    let fs = open(&device, "ordered");
    let file = create(&fs, b"file");
    refused(set(&fs, file.ino(), true), libc::EINVAL);
    refused(
        fs.set_flags(&Ctx::ROOT, file.ino(), EXTENTS | 0x40),
        libc::EINVAL,
    );
    assert_eq!(fs.get_flags(file.ino()).unwrap(), 0);

    let mut mkfs_options = Mkfs::blocks(4096).feature("bigalloc");
    mkfs_options.args.extend(["-C".into(), "16384".into()]);
    let fs = open(&mkfs(64, &mkfs_options), "ordered");
    let file = create(&fs, b"file");
    refused(set(&fs, file.ino(), false), libc::EOPNOTSUPP);

    // There is no space for the tree.
    let device = mkfs(16, &Mkfs::blocks(1024).journal_mib(1));
    let fs = open(&device, "ordered");
    let blocks: Vec<u32> = (0..SCATTERED).map(|i| i * 2).collect();
    let file = block_mapped(&fs, b"file", &blocks);
    let was = (content(&fs, &file), mapped(&file, &fs));
    let filler = create(&fs, b"filler");
    let mut at = 0;
    while let Ok(n) = fs.write(&Ctx::ROOT, &filler, at, &[1; 1024], false) {
        at += n as u64;
    }
    refused(set(&fs, file.ino(), true), libc::ENOSPC);
    assert!(!has_extents(&fs, file.ino()));
    assert_eq!((content(&fs, &file), mapped(&file, &fs)), was);
    drop((file, filler));
    fs.unmount().unwrap();
    fsck(&device);
}

/// No transaction of a journal of 1 MiB holds a tree of so many pieces.
#[test]
fn what_no_transaction_can_hold_is_refused() {
    let device = mkfs(64, &Mkfs::blocks(1024).journal_mib(1));
    let fs = open(&device, "ordered");
    let blocks: Vec<u32> = (0..26_000).map(|i| i * 2).collect();
    let file = block_mapped(&fs, b"file", &blocks);
    refused(set(&fs, file.ino(), true), libc::ENOSPC);
    assert!(!has_extents(&fs, file.ino()));
    assert_eq!(content(&fs, &file).len(), blocks.len());
    drop(file);
    fs.unmount().unwrap();
    fsck(&device);
}

/// A map that names a block twice, or itself, or a block of the file system, is damage.
#[test]
fn damaged_maps_stay_as_they_are() {
    let base = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&base, "ordered");
    let file = block_mapped(&fs, b"file", &(0..14).collect::<Vec<_>>());
    let body = file.inode.body.read();
    let indirect = u64::from(pointer(body.i_block(), DIRECT));
    let direct = pointer(body.i_block(), 3);
    drop(body);
    drop(file);
    fs.unmount().unwrap();
    for named in [direct, indirect as u32, 1, u32::MAX] {
        let device = Arc::new(base.fork());
        device
            .write(indirect * 4096 + 8, &named.to_le_bytes())
            .unwrap();
        let fs = open(&device, "ordered");
        let file = find(&fs, b"file");
        refused(set(&fs, file.ino(), true), libc::EUCLEAN);
        assert!(!has_extents(&fs, file.ino()));
    }
}
