//! Effects of operations other than on data: times, modes, flags, commits.

use std::thread::sleep;
use std::time::Duration;

use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 24,
    extents: true,
    cluster: 1,
};
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const JOURNAL_DATA: u32 = 0x4000;

fn volume() -> Volume {
    Volume::new(SHAPE, DataMode::Ordered)
}

#[test]
fn fdatasync_of_an_overwrite_commits_nothing_and_fsync_does() {
    let vol = volume();
    let f = vol.create("f");
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[1; 8192], false)
        .unwrap();
    vol.fsync(&f, false).unwrap();
    let commits = || vol.fs().stats().journal.commits;
    let before = commits();
    for i in 0..10u8 {
        sleep(Duration::from_millis(10));
        vol.fs()
            .write(&Ctx::ROOT, &f, 100, &[i; 5000], false)
            .unwrap();
        vol.fsync(&f, true).unwrap();
    }
    assert_eq!(commits(), before, "times alone must not cost a commit");
    vol.fsync(&f, false).unwrap();
    assert_eq!(
        commits(),
        before + 1,
        "the time of the last change is part of fsync"
    );
    vol.fs()
        .write(&Ctx::ROOT, &f, 8192, &[9; 1], false)
        .unwrap();
    vol.fsync(&f, true).unwrap();
    assert_eq!(commits(), before + 2, "a new size is part of fdatasync");
    drop(f);
    vol.finish();
}

/// data.D2.
#[test]
fn what_was_synced_is_there_without_an_unmount() {
    for data in [
        DataMode::Ordered,
        DataMode::Journal,
        DataMode::Overwrites,
        DataMode::Writeback,
    ] {
        let mut vol = Volume::new(SHAPE, data);
        let f = vol.create("f");
        let mut want = vec![0; 300_000];
        for i in 0..30u64 {
            let at = i * 7919 % 250_000;
            let bytes = vec![i as u8 + 1; 20_000];
            want[at as usize..at as usize + 20_000].copy_from_slice(&bytes);
            vol.fs().write(&Ctx::ROOT, &f, at, &bytes, false).unwrap();
            vol.fsync(&f, i % 2 == 0).unwrap();
        }
        let size = vol.size(&f) as usize;
        drop(f);
        vol.crash();
        let f = vol.open("f");
        assert!(vol.content(&f) == want[..size], "{data:?}");
        drop(f);
        vol.finish();
    }
}

#[test]
fn writes_move_mtime_and_ctime_and_reads_move_atime_relatively() {
    let vol = volume();
    let f = vol.create("f");
    let attr = || vol.fs().getattr(f.ino()).unwrap();
    let made = attr();
    sleep(Duration::from_millis(20));
    vol.fs().write(&Ctx::ROOT, &f, 0, b"hello", false).unwrap();
    let written = attr();
    assert!(
        written.mtime > made.mtime && written.ctime > made.ctime && written.atime == made.atime
    );
    sleep(Duration::from_millis(20));
    vol.content(&f);
    let read = attr();
    assert!(read.atime > written.mtime, "read after a change");
    assert_eq!((read.mtime, read.ctime), (written.mtime, written.ctime));
    sleep(Duration::from_millis(20));
    vol.content(&f);
    assert_eq!(
        attr().atime,
        read.atime,
        "nothing changed since the last read"
    );
    drop(f);
    vol.finish();
}

#[test]
fn a_write_by_others_takes_suid_and_sgid() {
    let vol = volume();
    let f = vol.create("f");
    let set = SetAttr {
        mode: Some(0o6755),
        ..SetAttr::default()
    };
    vol.fs().setattr(&Ctx::ROOT, f.ino(), &set).unwrap();
    vol.fs()
        .setxattr(
            &Ctx::ROOT,
            f.ino(),
            b"security.capability",
            b"cap",
            XattrSet::Any,
        )
        .unwrap();
    let mode = || vol.fs().getattr(f.ino()).unwrap().mode & 0o7777;
    vol.fs().write(&Ctx::ROOT, &f, 0, b"x", false).unwrap();
    assert_eq!(mode(), 0o6755);
    vol.fs().write(&Ctx::ROOT, &f, 0, b"x", true).unwrap();
    assert_eq!(mode(), 0o755);
    assert_eq!(
        vol.fs()
            .getxattr(f.ino(), b"security.capability")
            .unwrap_err()
            .errno(),
        libc::ENODATA
    );
    drop(f);
    vol.finish();
}

#[test]
fn immutable_and_append_only_files_keep_their_content() {
    let vol = volume();
    let f = vol.create("f");
    let fs = vol.fs();
    fs.write(&Ctx::ROOT, &f, 0, b"hello", false).unwrap();
    let punch = || {
        fs.fallocate(&Ctx::ROOT, &f, FallocateMode::PunchHole, 0, 5)
            .map_err(|e| e.errno())
    };
    fs.set_flags(&Ctx::ROOT, f.ino(), fs.get_flags(f.ino()).unwrap() | APPEND)
        .unwrap();
    assert_eq!(
        fs.write(&Ctx::ROOT, &f, 4, b"!", false)
            .unwrap_err()
            .errno(),
        libc::EPERM
    );
    assert_eq!(punch(), Err(libc::EPERM));
    assert_eq!(vol.truncate(&f, 1).unwrap_err().errno(), libc::EPERM);
    fs.write(&Ctx::ROOT, &f, 5, b" you", false).unwrap();
    fs.set_flags(
        &Ctx::ROOT,
        f.ino(),
        fs.get_flags(f.ino()).unwrap() & !APPEND | IMMUTABLE,
    )
    .unwrap();
    assert_eq!(
        fs.write(&Ctx::ROOT, &f, 9, b"!", false)
            .unwrap_err()
            .errno(),
        libc::EPERM
    );
    assert_eq!(punch(), Err(libc::EPERM));
    assert_eq!(vol.content(&f), b"hello you");
    fs.set_flags(
        &Ctx::ROOT,
        f.ino(),
        fs.get_flags(f.ino()).unwrap() & !IMMUTABLE,
    )
    .unwrap();
    drop(f);
    vol.finish();
}

#[test]
fn links_short_and_long() {
    let mut vol = volume();
    let long = vec![b'x'; 4095];
    for (i, target) in [&b"a"[..], &[b'y'; 59], &[b'y'; 60], &long]
        .iter()
        .enumerate()
    {
        let ino = vol
            .fs()
            .symlink(&Ctx::ROOT, ROOT_INO, format!("l{i}").as_bytes(), target)
            .unwrap()
            .ino;
        assert_eq!(vol.fs().readlink(ino).unwrap(), *target);
    }
    let too_long = vol
        .fs()
        .symlink(&Ctx::ROOT, ROOT_INO, b"l", &[b'x'; 4096])
        .unwrap_err();
    assert_eq!(too_long.errno(), libc::ENAMETOOLONG);
    vol.reopen();
    let ino = vol.fs().lookup(ROOT_INO, b"l3").unwrap().ino;
    assert_eq!(vol.fs().readlink(ino).unwrap(), long);
    assert_eq!(
        vol.fs().readlink(ROOT_INO).unwrap_err().errno(),
        libc::EINVAL
    );
    for i in 0..4 {
        vol.fs()
            .unlink(&Ctx::ROOT, ROOT_INO, format!("l{i}").as_bytes())
            .unwrap();
    }
    vol.finish();
}

#[test]
fn old_dirty_data_and_much_of_it_goes_home_by_itself() {
    let opts = FsOptions {
        cache_bytes: 3 << 20,
        commit_secs: 3600,
        ..FsOptions::default()
    };
    let vol = Volume::with(SHAPE, opts, |d| d);
    let f = vol.create("f");
    let chunk = vec![3u8; 1 << 20];
    // Five times the bound: background write-back must let writers continue, because nothing
    // commits.
    for round in 0..8u64 {
        vol.fs()
            .write(&Ctx::ROOT, &f, round << 20, &chunk, false)
            .unwrap();
        assert!(vol.fs().stats().dirty_bytes <= 3 << 20);
    }
    assert_eq!(vol.content(&f), vec![3; 8 << 20]);
    drop(f);
    vol.finish();
}

/// The data of a file with the flag goes through the journal, on an ordered volume. After the flag
/// is removed, no old image is replayed over data written back since.
#[test]
fn data_journaling_of_single_files() {
    let mut vol = volume();
    let f = vol.create("f");
    let flag = |vol: &Volume, f: &OpenRef, on: bool| {
        let flags = vol.fs().get_flags(f.ino()).unwrap() & !JOURNAL_DATA;
        vol.fs()
            .set_flags(
                &Ctx::ROOT,
                f.ino(),
                flags | if on { JOURNAL_DATA } else { 0 },
            )
            .unwrap();
    };
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[1; 20_000], false)
        .unwrap();
    flag(&vol, &f, true);
    let logged = || vol.fs().stats().journal.blocks_logged;
    let before = logged();
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[2; 20_000], false)
        .unwrap();
    vol.fsync(&f, true).unwrap();
    assert!(logged() >= before + 5, "the data is in the log");
    assert_eq!(vol.fs().stats().dirty_bytes, 0);
    flag(&vol, &f, false);
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[3; 20_000], false)
        .unwrap();
    assert!(vol.fs().stats().dirty_bytes > 0);
    vol.fsync(&f, true).unwrap();
    drop(f);
    vol.crash();
    let f = vol.open("f");
    assert!(vol.content(&f) == [3; 20_000]);
    flag(&vol, &f, true);
    vol.fs()
        .write(&Ctx::ROOT, &f, 10_000, &[4; 5000], false)
        .unwrap();
    vol.truncate(&f, 12_000).unwrap();
    vol.fsync(&f, false).unwrap();
    drop(f);
    vol.crash();
    let f = vol.open("f");
    let content = vol.content(&f);
    assert!(
        content.len() == 12_000
            && content[..10_000] == [3; 10_000]
            && content[10_000..] == [4; 2000]
    );
    let user = Ctx {
        uid: 1000,
        gid: 1000,
        pid: 1,
    };
    assert_eq!(
        vol.fs()
            .set_flags(&user, f.ino(), JOURNAL_DATA)
            .unwrap_err()
            .errno(),
        libc::EPERM
    );
    drop(f);
    vol.finish();
}
