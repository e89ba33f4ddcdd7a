//! Files that are synced by records of their own: without a commit, and all synced data survives a
//! crash.

use std::sync::mpsc;

use stetfs_ext4::*;
use stetfs_journal::Composition;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 48,
    extents: true,
    cluster: 1,
};

fn volume(data: DataMode, lanes: u16) -> Volume {
    let journal = Composition::from(data).with("records", &lanes.to_string());
    let opts = FsOptions {
        journal: journal.unwrap(),
        cache_bytes: 16 << 20,
        commit_secs: 3600,
        ..FsOptions::default()
    };
    Volume::with(SHAPE, opts, |d| d)
}

pub fn sync(fs: &Fs, file: &OpenRef, datasync: bool) {
    let (send, wait) = mpsc::channel();
    fs.fsync(
        file,
        datasync,
        Wait::Deferred,
        Box::new(move |r| send.send(r).unwrap()),
    );
    wait.recv().unwrap().unwrap();
}

pub fn sync_all(fs: &Fs) {
    let (send, wait) = mpsc::channel();
    fs.sync_all(Box::new(move |r| send.send(r).unwrap()));
    wait.recv().unwrap().unwrap();
}

/// An open file.
pub struct Open {
    ino: Ino,
    pub file: OpenRef,
}

pub fn create(fs: &Fs, parent: Ino, name: &[u8]) -> Open {
    let (attr, file) = fs
        .create(&Ctx::ROOT, parent, name, 0o640, 0, libc::O_RDWR)
        .unwrap();
    Open {
        ino: attr.ino,
        file,
    }
}

fn directory(fs: &Fs, ino: Ino) -> OpenRef {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    fs.open_inode(&Ctx::ROOT, ino, flags).unwrap()
}

pub fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| seed.wrapping_add((i / 97) as u8))
        .collect()
}

/// Writes a piece behind the expected content of a file, and adds it to that.
pub fn append(fs: &Fs, file: &OpenRef, expected: &mut Vec<u8>, piece: &[u8]) {
    let end = expected.len() as u64;
    fs.write(&Ctx::ROOT, file, end, piece, false).unwrap();
    expected.extend(piece);
}

pub fn read(fs: &Fs, path: &[&[u8]]) -> Option<Vec<u8>> {
    let mut at = ROOT_INO;
    let mut size = 0;
    for name in path {
        let attr = fs.lookup(at, name).ok()?;
        (at, size) = (attr.ino, attr.size);
    }
    let file = fs.open_inode(&Ctx::ROOT, at, libc::O_RDONLY).unwrap();
    let mut content = vec![0; size as usize];
    let n = fs.read(&file, 0, &mut content).unwrap();
    content.truncate(n);
    Some(content)
}

/// The number of commits, and of records.
fn counts(fs: &Fs) -> (u64, u64) {
    let stats = fs.stats().journal;
    (stats.commits, stats.file_records)
}

pub fn reasons(fs: &Fs) -> Vec<(&'static str, u64)> {
    let all = fs.stats().sync_reasons;
    all.into_iter().filter(|(_, n)| *n > 0).collect()
}

#[test]
fn appends_and_syncs_take_a_record_each_and_no_commit() {
    for data in [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites] {
        let mut vol = volume(data, 2);
        let fs = vol.fs().clone();
        let open = create(&fs, ROOT_INO, b"log");
        let before = fs.stats().journal.commits;
        let mut expected = Vec::new();
        for i in 0..20u8 {
            let piece = bytes(i, 1500);
            append(&fs, &open.file, &mut expected, &piece);
            sync(&fs, &open.file, i % 2 == 0);
        }
        assert_eq!(counts(&fs), (before, 20), "{data:?} {:?}", reasons(&fs));
        assert_eq!(reasons(&fs), []);
        drop((open, fs));
        vol.crash();
        assert_eq!(read(vol.fs(), &[b"log"]), Some(expected), "{data:?}");
        vol.finish();
    }
}

/// A record does not contain changes that an earlier commit made durable, even when appends follow
/// each other closely. Otherwise records would grow until only commits are possible.
#[test]
fn a_commit_between_appends_leaves_no_trace_in_the_records_after_it() {
    for data in [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites] {
        let mut vol = volume(data, 2);
        let fs = vol.fs().clone();
        let open = create(&fs, ROOT_INO, b"log");
        let mut expected = Vec::new();
        for i in 0..12u8 {
            append(&fs, &open.file, &mut expected, &bytes(i, 80 << 10));
            if i % 4 == 1 {
                sync_all(&fs);
                append(&fs, &open.file, &mut expected, &bytes(i, 80 << 10));
            }
            sync(&fs, &open.file, false);
        }
        assert_eq!(reasons(&fs), [], "{data:?}");
        assert_eq!(counts(&fs).1, 12, "{data:?}");
        drop((open, fs));
        vol.crash();
        assert!(read(vol.fs(), &[b"log"]) == Some(expected), "{data:?}");
        vol.finish();
    }
}

#[test]
fn new_files_in_new_directories_are_reachable() {
    let mut vol = volume(DataMode::Ordered, 2);
    let fs = vol.fs().clone();
    let mut dir = ROOT_INO;
    let path: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"file"];
    for name in &path[..5] {
        let made = fs.mkdir(&Ctx::ROOT, dir, name, 0o751, 0).unwrap();
        dir = made.ino;
    }
    let one = create(&fs, dir, b"file");
    fs.write(&Ctx::ROOT, &one.file, 0, b"content", false)
        .unwrap();
    let other = create(&fs, dir, b"not synced");
    sync(&fs, &one.file, false);
    // The second sync finds the directories recorded.
    let two = create(&fs, dir, b"two");
    sync(&fs, &two.file, false);
    assert_eq!(counts(&fs).1, 2);
    assert_eq!(reasons(&fs), []);
    drop((one, two, other, fs));
    vol.crash();
    let fs = vol.fs();
    assert_eq!(read(fs, &path), Some(b"content".to_vec()));
    let attr = fs.lookup(ROOT_INO, b"a").unwrap();
    assert_eq!(attr.mode & 0o7777, 0o751);
    assert_eq!(attr.nlink, 3);
    let mut lost = path;
    lost[5] = b"not synced";
    assert_eq!(read(fs, &lost), None);
    vol.finish();
}

#[test]
fn all_that_changes_a_file_is_in_its_record() {
    for data in [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites] {
        let mut vol = volume(data, 2);
        let fs = vol.fs().clone();
        let open = create(&fs, ROOT_INO, b"file");
        fs.write(&Ctx::ROOT, &open.file, 0, &bytes(1, 90_000), false)
            .unwrap();
        let mut model = bytes(1, 90_000);
        sync_all(&fs);
        let step = |what: &str, expected: &[u8]| {
            let commits = fs.stats().journal.commits;
            sync(&fs, &open.file, false);
            assert_eq!(fs.stats().journal.commits, commits, "{what}, {data:?}");
            let crashed = std::sync::Arc::new(vol.mem().fork());
            let again = Fs::open(crashed, FsOptions::default()).unwrap();
            let found = read(&again, &[b"file"]).unwrap();
            assert!(found == expected, "{what}, {data:?}");
            again.unmount().unwrap();
        };
        let size = |size| SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, open.ino, &size(50_001)).unwrap();
        model.truncate(50_001);
        step("shrunk", &model);
        fs.setattr(&Ctx::ROOT, open.ino, &size(120_000)).unwrap();
        model.resize(120_000, 0);
        step("grown", &model);
        let punch = FallocateMode::PunchHole;
        fs.fallocate(&Ctx::ROOT, &open.file, punch, 5000, 20_000)
            .unwrap();
        model[5000..25_000].fill(0);
        step("punched", &model);
        let zero = FallocateMode::ZeroRange { keep_size: false };
        fs.fallocate(&Ctx::ROOT, &open.file, zero, 30_000, 9000)
            .unwrap();
        model[30_000..39_000].fill(0);
        step("zeroed", &model);
        fs.write(&Ctx::ROOT, &open.file, 31_000, &bytes(9, 3000), false)
            .unwrap();
        model[31_000..34_000].copy_from_slice(&bytes(9, 3000));
        step("overwritten", &model);
        let allocate = FallocateMode::Allocate { keep_size: true };
        fs.fallocate(&Ctx::ROOT, &open.file, allocate, 200_000, 50_000)
            .unwrap();
        step("allocated", &model);
        fs.setxattr(&Ctx::ROOT, open.ino, b"user.a", b"short", XattrSet::Any)
            .unwrap();
        let mode = SetAttr {
            mode: Some(0o604),
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, open.ino, &mode).unwrap();
        step("given attributes", &model);
        drop((open, fs));
        vol.crash();
        let fs = vol.fs();
        let attr = fs.lookup(ROOT_INO, b"file").unwrap();
        assert_eq!(attr.mode & 0o7777, 0o604);
        assert_eq!(fs.getxattr(attr.ino, b"user.a").unwrap(), b"short");
        fs.forget(attr.ino, 1);
        vol.finish();
    }
}

/// Every second block, so that the extent tree has more than one level.
#[test]
fn files_with_many_extents() {
    let mut vol = volume(DataMode::Ordered, 1);
    let fs = vol.fs().clone();
    let open = create(&fs, ROOT_INO, b"sparse");
    let mut expected = Vec::new();
    for i in 0..900u64 {
        let piece = bytes(i as u8, 100);
        fs.write(&Ctx::ROOT, &open.file, i * 8192, &piece, false)
            .unwrap();
        expected.resize(i as usize * 8192, 0);
        expected.extend(piece);
        if i % 30 == 29 {
            sync(&fs, &open.file, false);
        }
    }
    assert!(counts(&fs).1 >= 20, "{:?}", reasons(&fs));
    drop((open, fs));
    vol.crash();
    assert!(read(vol.fs(), &[b"sparse"]) == Some(expected));
    vol.finish();
}

#[test]
fn what_a_record_cannot_say_takes_a_commit_and_is_counted() {
    let vol = volume(DataMode::Ordered, 2);
    let fs = vol.fs().clone();
    let mut seen = 0;
    let mut commits = |reason: &str| {
        seen += 1;
        let all = reasons(&fs);
        assert!(all.iter().any(|(r, _)| *r == reason), "{reason}: {all:?}");
        assert_eq!(all.iter().map(|(_, n)| n).sum::<u64>(), seen, "{all:?}");
    };
    let open = create(&fs, ROOT_INO, b"a");
    fs.rename(
        &Ctx::ROOT,
        ROOT_INO,
        b"a",
        ROOT_INO,
        b"b",
        RenameFlags::default(),
    )
    .unwrap();
    sync(&fs, &open.file, false);
    commits("name");
    fs.link(&Ctx::ROOT, open.ino, ROOT_INO, b"c").unwrap();
    sync(&fs, &open.file, false);
    commits("name");
    fs.setxattr(
        &Ctx::ROOT,
        open.ino,
        b"user.long",
        &[7; 2000],
        XattrSet::Any,
    )
    .unwrap();
    sync(&fs, &open.file, false);
    commits("attributes");
    let root = directory(&fs, ROOT_INO);
    fs.mkdir(&Ctx::ROOT, ROOT_INO, b"dir", 0o755, 0).unwrap();
    sync(&fs, &root, false);
    commits("kind");
    // A new file under the name of a file that was renamed, not unlinked.
    create(&fs, ROOT_INO, b"x");
    fs.rename(
        &Ctx::ROOT,
        ROOT_INO,
        b"x",
        ROOT_INO,
        b"y",
        RenameFlags::default(),
    )
    .unwrap();
    let new = create(&fs, ROOT_INO, b"x");
    sync(&fs, &new.file, false);
    commits("name");
    // A new file under the former name of a file with another name: that file must not be deleted
    // with this name.
    let kept = create(&fs, ROOT_INO, b"k");
    sync(&fs, &kept.file, false);
    fs.link(&Ctx::ROOT, kept.ino, ROOT_INO, b"l").unwrap();
    fs.unlink(&Ctx::ROOT, ROOT_INO, b"k").unwrap();
    let new = create(&fs, ROOT_INO, b"k");
    sync(&fs, &new.file, false);
    commits("name");
    fs.forget(open.ino, 1);
    drop((open, new, kept, root, fs));
    vol.finish();
}

/// As a database uses its rollback journal.
#[test]
fn a_name_is_used_again_and_again() {
    let mut vol = volume(DataMode::Ordered, 2);
    let fs = vol.fs().clone();
    create(&fs, ROOT_INO, b"journal");
    sync_all(&fs);
    for i in 0..20u8 {
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"journal").unwrap();
        let open = create(&fs, ROOT_INO, b"journal");
        fs.write(&Ctx::ROOT, &open.file, 0, &bytes(i, 5000), false)
            .unwrap();
        sync(&fs, &open.file, false);
        fs.forget(open.ino, 1);
    }
    assert_eq!(reasons(&fs), []);
    assert_eq!(counts(&fs).1, 20);
    drop(fs);
    vol.crash();
    assert_eq!(read(vol.fs(), &[b"journal"]), Some(bytes(19, 5000)));
    vol.finish();
}

/// As careful programs do for a new file: its directory is synced, too.
#[test]
fn a_directory_whose_new_names_are_in_records_is_durable() {
    let mut vol = volume(DataMode::Ordered, 2);
    let fs = vol.fs().clone();
    let dir = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"d", 0o755, 0).unwrap().ino;
    create(&fs, dir, b"old");
    sync_all(&fs);
    let (before, _) = counts(&fs);
    let d = directory(&fs, dir);
    sync(&fs, &d, false);
    for i in 0..10u8 {
        // A file with a new name, and one with the name of an unlinked file.
        fs.unlink(&Ctx::ROOT, dir, b"old").unwrap();
        for name in [[b'n', b'0' + i].as_slice(), b"old"] {
            let open = create(&fs, dir, name);
            fs.write(&Ctx::ROOT, &open.file, 0, &bytes(i, 100), false)
                .unwrap();
            sync(&fs, &open.file, false);
            fs.forget(open.ino, 1);
        }
        sync(&fs, &d, i % 2 == 0);
    }
    assert_eq!(reasons(&fs), []);
    assert_eq!(counts(&fs), (before, 20));
    drop((fs, d));
    vol.crash();
    assert_eq!(read(vol.fs(), &[b"d", b"old"]), Some(bytes(9, 100)));
    assert_eq!(read(vol.fs(), &[b"d", b"n4"]), Some(bytes(4, 100)));
    vol.finish();
}

/// Each of these changes takes a commit, and exists after it.
#[test]
fn a_directory_that_changed_otherwise_takes_a_commit() {
    type Change = fn(&Fs, Ino);
    type Check = fn(&Fs, Ino) -> bool;
    let changes: [(&str, Change, Check); 6] = [
        (
            "a file that was not synced",
            |fs, dir| {
                create(fs, dir, b"new");
            },
            |fs, dir| fs.lookup(dir, b"new").is_ok(),
        ),
        (
            "an unlink",
            |fs, dir| fs.unlink(&Ctx::ROOT, dir, b"synced").unwrap(),
            |fs, dir| fs.lookup(dir, b"synced").is_err(),
        ),
        (
            "a rename",
            |fs, dir| {
                let flags = RenameFlags::default();
                fs.rename(&Ctx::ROOT, dir, b"synced", dir, b"new", flags)
                    .unwrap();
            },
            |fs, dir| fs.lookup(dir, b"new").is_ok() && fs.lookup(dir, b"synced").is_err(),
        ),
        (
            "a link",
            |fs, dir| {
                let ino = fs.lookup(dir, b"synced").unwrap().ino;
                fs.link(&Ctx::ROOT, ino, dir, b"new").unwrap();
            },
            |fs, dir| fs.lookup(dir, b"new").is_ok(),
        ),
        (
            "a directory",
            |fs, dir| {
                fs.mkdir(&Ctx::ROOT, dir, b"new", 0o755, 0).unwrap();
            },
            |fs, dir| fs.lookup(dir, b"new").is_ok(),
        ),
        (
            "an attribute",
            |fs, dir| {
                let value = b"value";
                fs.setxattr(&Ctx::ROOT, dir, b"user.new", value, XattrSet::Any)
                    .unwrap();
            },
            |fs, dir| fs.getxattr(dir, b"user.new").is_ok(),
        ),
    ];
    for (what, change, is_there) in changes {
        let mut vol = volume(DataMode::Ordered, 2);
        let fs = vol.fs().clone();
        let dir = fs.mkdir(&Ctx::ROOT, ROOT_INO, b"d", 0o755, 0).unwrap().ino;
        sync_all(&fs);
        let open = create(&fs, dir, b"synced");
        sync(&fs, &open.file, false);
        change(&fs, dir);
        let d = directory(&fs, dir);
        sync(&fs, &d, false);
        assert_eq!(reasons(&fs), [("kind", 1)], "{what}");
        drop((fs, open, d));
        vol.crash();
        let dir = vol.fs().lookup(ROOT_INO, b"d").unwrap().ino;
        assert!(is_there(vol.fs(), dir), "{what}");
        vol.finish();
    }
}

#[test]
fn a_sync_without_changes_writes_nothing_and_one_of_data_alone_no_record() {
    let mut vol = volume(DataMode::Ordered, 2);
    let fs = vol.fs().clone();
    let open = create(&fs, ROOT_INO, b"db");
    fs.write(&Ctx::ROOT, &open.file, 0, &bytes(3, 8192), false)
        .unwrap();
    sync(&fs, &open.file, false);
    let before = counts(&fs);
    sync(&fs, &open.file, false);
    sync(&fs, &open.file, true);
    assert_eq!(counts(&fs), before);
    sync_all(&fs);
    let before = counts(&fs);
    for i in 0..10u8 {
        fs.write(&Ctx::ROOT, &open.file, 4096, &bytes(i, 4096), false)
            .unwrap();
        sync(&fs, &open.file, true);
    }
    assert_eq!(counts(&fs), before, "overwritten in place");
    drop((open, fs));
    vol.crash();
    let content = read(vol.fs(), &[b"db"]).unwrap();
    assert_eq!(&content[4096..], bytes(9, 4096));
    vol.finish();
}

/// The old page is in a record that is still alive when the file is overwritten and synced again.
#[test]
fn data_synced_later_is_not_undone_by_an_older_record() {
    let mut vol = volume(DataMode::Ordered, 1);
    let fs = vol.fs().clone();
    let open = create(&fs, ROOT_INO, b"db");
    fs.write(&Ctx::ROOT, &open.file, 0, &bytes(1, 4096), false)
        .unwrap();
    sync(&fs, &open.file, false);
    fs.write(&Ctx::ROOT, &open.file, 0, &bytes(2, 4096), false)
        .unwrap();
    sync(&fs, &open.file, true);
    drop((open, fs));
    vol.crash();
    assert_eq!(read(vol.fs(), &[b"db"]), Some(bytes(2, 4096)));
    vol.finish();
}

#[test]
fn a_lane_that_fills_up_takes_commits_and_goes_on() {
    let mut vol = volume(DataMode::Ordered, 1);
    let fs = vol.fs().clone();
    let open = create(&fs, ROOT_INO, b"file");
    let mut expected = Vec::new();
    for i in 0..400u32 {
        let piece = bytes(i as u8, 5000);
        append(&fs, &open.file, &mut expected, &piece);
        sync(&fs, &open.file, false);
    }
    let all = reasons(&fs);
    assert!(matches!(all[..], [] | [("full", 1..20)]), "{all:?}");
    assert!(counts(&fs).0 > 1);
    drop((open, fs));
    vol.crash();
    assert!(read(vol.fs(), &[b"file"]) == Some(expected));
    vol.finish();
}

#[test]
fn many_threads_sync_their_files() {
    for data in [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites] {
        let mut vol = volume(data, 4);
        let fs = vol.fs().clone();
        std::thread::scope(|scope| {
            for t in 0..8u8 {
                let fs = &fs;
                scope.spawn(move || {
                    let dir = fs
                        .mkdir(&Ctx::ROOT, ROOT_INO, &[b'd', b'0' + t], 0o755, 0)
                        .unwrap();
                    for i in 0..25u8 {
                        let open = create(fs, dir.ino, &[b'f', b'a' + i]);
                        fs.write(&Ctx::ROOT, &open.file, 0, &bytes(t + i, 3000), false)
                            .unwrap();
                        sync(fs, &open.file, i % 3 == 0);
                        fs.forget(open.ino, 1);
                    }
                });
            }
        });
        drop(fs);
        vol.crash();
        for t in 0..8u8 {
            for i in 0..25u8 {
                let path: [&[u8]; 2] = [&[b'd', b'0' + t], &[b'f', b'a' + i]];
                assert_eq!(read(vol.fs(), &path), Some(bytes(t + i, 3000)), "{t} {i}");
            }
        }
        vol.finish();
    }
}

/// The paper's first scenario (§6.5): of a thousand files every second one is synced, and only
/// those exist after a crash.
#[test]
fn of_a_thousand_files_those_come_back_that_were_synced() {
    let opts = FsOptions {
        commit_secs: 3600,
        // All records fit into half a lane: no commit is needed for room.
        journal: "ordered,records=2".parse().unwrap(),
        ..FsOptions::default()
    };
    let mut mkfs = stetfs_testkit::Mkfs::blocks(4096).journal_mib(64);
    mkfs.args.extend(["-N".into(), "4096".into()]);
    let image = stetfs_testkit::Image::make(256 << 20, &mkfs).unwrap();
    let mem = std::sync::Arc::new(stetfs_block::MemDevice::load(image.path()).unwrap());
    let mut vol = Volume::on(mem.clone(), mem, opts);
    let fs = vol.fs().clone();
    let name = |i: u32| format!("file {i}").into_bytes();
    for i in 0..1000 {
        let open = create(&fs, ROOT_INO, &name(i));
        fs.write(&Ctx::ROOT, &open.file, 0, &name(i), false)
            .unwrap();
        if i % 2 == 1 {
            sync(&fs, &open.file, false);
        }
        fs.forget(open.ino, 1);
    }
    assert_eq!(counts(&fs), (0, 500), "{:?}", reasons(&fs));
    drop(fs);
    vol.crash();
    for i in 0..1000 {
        let expected = (i % 2 == 1).then(|| name(i));
        assert_eq!(read(vol.fs(), &[&name(i)]), expected, "{i}");
    }
    vol.finish();
}

/// The paper's second scenario: 4 KiB and a sync, again and again, with other writes in between so
/// that the extents do not join. Up to 1 GiB with `STETFS_LONG`.
#[test]
fn a_file_that_is_synced_after_every_append() {
    let long = std::env::var("STETFS_LONG").is_ok_and(|v| v == "1");
    let mib: u64 = if long { 1024 } else { 12 };
    let opts = FsOptions {
        journal: "ordered,records=2".parse().unwrap(),
        ..FsOptions::default()
    };
    let mkfs = stetfs_testkit::Mkfs::blocks(4096).journal_mib(16);
    let image = stetfs_testkit::Image::make((2 * mib + 128) << 20, &mkfs).unwrap();
    let mem = std::sync::Arc::new(stetfs_block::MemDevice::load(image.path()).unwrap());
    let mut vol = Volume::on(mem.clone(), mem, opts);
    let fs = vol.fs().clone();
    let (log, other) = (
        create(&fs, ROOT_INO, b"log"),
        create(&fs, ROOT_INO, b"other"),
    );
    let blocks = mib * 256;
    for i in 0..blocks {
        fs.write(
            &Ctx::ROOT,
            &log.file,
            i * 4096,
            &bytes(i as u8, 4096),
            false,
        )
        .unwrap();
        if i % 16 == 0 {
            // A hole before each write, so that windows do not keep the two files apart.
            fs.write(&Ctx::ROOT, &other.file, i * 8192, b"x", false)
                .unwrap();
        }
        sync(&fs, &log.file, true);
    }
    drop((log, other, fs));
    vol.crash();
    let found = read(vol.fs(), &[b"log"]).unwrap();
    assert_eq!(found.len() as u64, blocks * 4096);
    for (i, block) in found.chunks(4096).enumerate() {
        assert!(block == bytes(i as u8, 4096), "block {i}");
    }
    vol.finish();
}
