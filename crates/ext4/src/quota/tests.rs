//! Usage as e2fsck counts it, and limits.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_journal::Canary;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::quota::{Limits, QuotaKind};
use stetfs_sync::Hold;
use stetfs_testkit::Mkfs;

use crate::error::FsError;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::{fsck, image, mkfs, open};
use crate::types::{
    Ctx, FallocateMode, FsOptions, Ino, ROOT_INO, RenameFlags, SetAttr, Wait, XattrSet,
};

const ANNA: Ctx = Ctx {
    uid: 1000,
    gid: 100,
    pid: 1,
};

fn volume(mib: u64, block: u32, features: &str) -> Arc<MemDevice> {
    let features = format!("quota,project,{features}");
    let options = Mkfs::blocks(block)
        .feature(features.trim_end_matches(','))
        .extended("quotatype=usrquota:grpquota:prjquota");
    mkfs(mib, &options)
}

/// Space in KiB and inodes.
fn used(fs: &Fs, kind: QuotaKind, id: u32) -> (u64, u64) {
    let usage = fs.quota().unwrap();
    let of = usage.iter().find(|u| u.kind == kind).unwrap();
    let entry = of.entries.iter().find(|e| e.id == id);
    entry.map_or((0, 0), |e| (e.space >> 10, e.inodes))
}

fn file(fs: &Fs, ctx: &Ctx, dir: Ino, name: &str) -> OpenRef {
    let name = name.as_bytes();
    let (attr, open) = fs.create(ctx, dir, name, 0o644, 0, libc::O_RDWR).unwrap();
    fs.forget(attr.ino, 1);
    open
}

fn refused<T>(result: Result<T, FsError>, errno: i32) {
    match result {
        Err(e) => assert_eq!(e.errno(), errno, "{e}"),
        Ok(_) => panic!("not refused"),
    }
}

fn close(fs: Arc<Fs>, device: &MemDevice) {
    fs.unmount().unwrap();
    drop(fs);
    fsck(device);
}

fn hand_on(fs: &Fs, dir: Ino, project: u32) {
    fs.set_project(&Ctx::ROOT, dir, project).unwrap();
    let flags = fs.get_flags(dir).unwrap() | InodeFlags::PROJINHERIT.bits();
    fs.set_flags(&Ctx::ROOT, dir, flags).unwrap();
}

/// quota.Q1.
#[test]
fn usage_follows_what_is_done() {
    for (block, features) in [
        (1024, ""),
        (4096, "ea_inode"),
        (4096, "inline_data,^extents,^64bit"),
    ] {
        let device = volume(32, block, features);
        let fs = open(&device);
        let kib = u64::from(block) >> 10;
        let anna = |fs: &Fs| used(fs, QuotaKind::User, 1000);
        let f = file(&fs, &ANNA, ROOT_INO, "file");
        assert_eq!(anna(&fs), (0, 1));
        fs.write(&ANNA, &f, 0, &vec![1; 40 * block as usize], false)
            .unwrap();
        let full = anna(&fs);
        assert!(full.0 >= 40 * kib && full.0 <= 42 * kib, "{full:?}");
        assert_eq!(used(&fs, QuotaKind::Group, 100), full);
        let size = |n: u64| SetAttr {
            size: Some(n),
            ..SetAttr::default()
        };
        fs.setattr(&ANNA, f.ino(), &size(u64::from(block))).unwrap();
        assert_eq!(anna(&fs), (kib, 1));
        fs.setxattr(&ANNA, f.ino(), b"user.a", &vec![7; 700], XattrSet::Any)
            .unwrap();
        assert_eq!(anna(&fs), (2 * kib, 1));
        let values = u64::from(features == "ea_inode");
        if values > 0 {
            fs.setxattr(&ANNA, f.ino(), b"user.b", &vec![7; 9000], XattrSet::Any)
                .unwrap();
            assert_eq!(anna(&fs), (2 * kib + 12, 2));
        }
        // A new owner, for an inode loaded from the volume.
        let before = anna(&fs);
        close(fs, &device);
        let fs = open(&device);
        let ino = fs.lookup(ROOT_INO, b"file").unwrap().ino;
        let give = |uid, gid| SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, ino, &give(Some(70_000), None))
            .unwrap();
        assert_eq!(
            (anna(&fs), used(&fs, QuotaKind::User, 70_000)),
            ((0, 0), before)
        );
        assert_eq!(used(&fs, QuotaKind::Group, 100), before);
        fs.set_project(&Ctx::ROOT, ino, 4_000_000_000).unwrap();
        assert_eq!(used(&fs, QuotaKind::Project, 4_000_000_000), before);
        // An unlinked file counts while it is open.
        let f = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        fs.forget(ino, 1);
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"file").unwrap();
        assert_eq!(used(&fs, QuotaKind::User, 70_000), before);
        drop(f);
        assert_eq!(used(&fs, QuotaKind::User, 70_000), (0, 0));
        assert_eq!(used(&fs, QuotaKind::Project, 4_000_000_000), (0, 0));
        close(fs, &device);
    }
}

/// debugfs also finds the entries that were added (quota.Q2, quota.Q3).
#[test]
fn new_ids_find_room() {
    for block in [1024, 4096] {
        let device = volume(32, block, "");
        let fs = open(&device);
        let mut rng = fastrand::Rng::with_seed(5);
        let mut ids = BTreeMap::new();
        for i in 0..400 {
            let ctx = Ctx {
                uid: if i % 2 == 0 { rng.u32(..) } else { i },
                gid: i / 50,
                pid: 1,
            };
            *ids.entry(ctx.uid).or_insert(0u64) += 1;
            drop(file(&fs, &ctx, ROOT_INO, &i.to_string()));
        }
        fs.unmount().unwrap();
        drop(fs);
        let fs = open(&device);
        for (id, inodes) in ids.iter().filter(|(id, _)| **id != 0) {
            assert_eq!(used(&fs, QuotaKind::User, *id), (0, *inodes), "{id}");
        }
        close(fs, &device);
        let list = std::process::Command::new("debugfs")
            .args(["-R", "list_quota user"])
            .arg(image(&device).path())
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let listed: Vec<u32> = list
            .lines()
            .filter_map(|l| l.split_whitespace().next()?.parse().ok())
            .collect();
        for id in ids.keys() {
            assert!(listed.contains(id), "{id} is not in {list}");
        }
    }
}

#[test]
fn projects_are_handed_on_and_their_bounds_kept() {
    let device = volume(32, 4096, "");
    let fs = open(&device);
    let mkdir = |name: &[u8]| fs.mkdir(&Ctx::ROOT, ROOT_INO, name, 0o755, 0).unwrap().ino;
    let (a, b, plain) = (mkdir(b"a"), mkdir(b"b"), mkdir(b"plain"));
    hand_on(&fs, a, 5);
    hand_on(&fs, b, 6);
    let f = file(&fs, &Ctx::ROOT, a, "file");
    let sub = fs.mkdir(&Ctx::ROOT, a, b"sub", 0o755, 0).unwrap().ino;
    assert_eq!(
        (fs.project(f.ino()).unwrap(), fs.project(sub).unwrap()),
        (5, 5)
    );
    assert_ne!(
        fs.get_flags(sub).unwrap() & InodeFlags::PROJINHERIT.bits(),
        0
    );
    assert_eq!(
        fs.get_flags(f.ino()).unwrap() & InodeFlags::PROJINHERIT.bits(),
        0
    );
    assert_eq!(used(&fs, QuotaKind::Project, 5), (8, 3));
    let rename = |from, to, flags| fs.rename(&Ctx::ROOT, from, b"file", to, b"file", flags);
    let plainly = RenameFlags::default();
    refused(rename(a, b, plainly), libc::EXDEV);
    refused(fs.link(&Ctx::ROOT, f.ino(), b, b"link"), libc::EXDEV);
    fs.link(&Ctx::ROOT, f.ino(), a, b"link").unwrap();
    let other = file(&fs, &Ctx::ROOT, b, "file");
    let exchange = RenameFlags {
        exchange: true,
        ..plainly
    };
    refused(rename(a, b, exchange), libc::EXDEV);
    // Any file may be moved out of the project; only files that still belong to it may be moved
    // back.
    rename(a, plain, plainly).unwrap();
    rename(plain, a, plainly).unwrap();
    fs.set_project(&Ctx::ROOT, other.ino(), 5).unwrap();
    rename(b, a, plainly).unwrap();
    let stranger = Ctx { uid: 7, ..ANNA };
    refused(fs.set_project(&stranger, f.ino(), 1), libc::EPERM);
    drop((f, other));
    assert_eq!(used(&fs, QuotaKind::Project, 6), (4, 1));
    close(fs, &device);
}

#[test]
fn without_the_feature_there_is_project_0_only() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let f = file(&fs, &Ctx::ROOT, ROOT_INO, "file");
    refused(fs.set_project(&Ctx::ROOT, f.ino(), 1), libc::EOPNOTSUPP);
    fs.set_project(&Ctx::ROOT, f.ino(), 0).unwrap();
    assert_eq!(fs.quota().unwrap(), []);
    refused(
        fs.set_limits(QuotaKind::User, 1, Limits::default()),
        libc::ESRCH,
    );
}

fn limit_space(fs: &Fs, kind: QuotaKind, id: u32, hard: u64) {
    let limits = Limits {
        space_hard: hard,
        ..Limits::default()
    };
    fs.set_limits(kind, id, limits).unwrap();
}

#[test]
fn hard_limits_hold_for_all_but_root() {
    let device = volume(32, 4096, "");
    let fs = open(&device);
    let f = file(&fs, &ANNA, ROOT_INO, "file");
    limit_space(&fs, QuotaKind::User, 1000, 100);
    // As much as fits is written; then nothing more.
    let wrote = fs.write(&ANNA, &f, 0, &vec![1; 1 << 20], false).unwrap();
    assert_eq!(wrote, 100 << 10);
    refused(fs.write(&ANNA, &f, 100 << 10, &[1], false), libc::EDQUOT);
    fs.write(&ANNA, &f, 0, &vec![2; 100 << 10], false).unwrap();
    let allocate = FallocateMode::Allocate { keep_size: true };
    refused(
        fs.fallocate(&ANNA, &f, allocate, 200 << 10, 4096),
        libc::EDQUOT,
    );
    refused(
        fs.setxattr(&ANNA, f.ino(), b"user.a", &[7; 3000], XattrSet::Any),
        libc::EDQUOT,
    );
    refused(fs.mkdir(&ANNA, ROOT_INO, b"dir", 0o755, 0), libc::EDQUOT);
    assert_eq!(used(&fs, QuotaKind::User, 1000), (100, 1));
    fs.write(&Ctx::ROOT, &f, 100 << 10, &[1; 4096], false)
        .unwrap();
    assert_eq!(used(&fs, QuotaKind::User, 1000), (104, 1));
    let shorter = SetAttr {
        size: Some(50 << 10),
        ..SetAttr::default()
    };
    fs.setattr(&ANNA, f.ino(), &shorter).unwrap();
    let wrote = fs
        .write(&ANNA, &f, 52 << 10, &vec![1; 1 << 20], false)
        .unwrap();
    assert_eq!(wrote, 48 << 10);
    // Inodes.
    let inodes = Limits {
        inodes_hard: 3,
        ..Limits::default()
    };
    fs.set_limits(QuotaKind::Group, 100, inodes).unwrap();
    drop(file(&fs, &ANNA, ROOT_INO, "2"));
    drop(file(&fs, &ANNA, ROOT_INO, "3"));
    let made = fs.mknod(&ANNA, ROOT_INO, b"4", libc::S_IFREG | 0o644, 0, 0);
    refused(made, libc::EDQUOT);
    refused(
        fs.tmpfile(&ANNA, ROOT_INO, 0o600, 0, libc::O_RDWR)
            .map(drop),
        libc::EDQUOT,
    );
    // To the account of another user, if its limits allow it.
    let other = Ctx {
        uid: 1001,
        gid: 101,
        pid: 1,
    };
    let g = file(&fs, &other, ROOT_INO, "other");
    let to = SetAttr {
        gid: Some(100),
        ..SetAttr::default()
    };
    refused(fs.setattr(&other, g.ino(), &to), libc::EDQUOT);
    assert_eq!(used(&fs, QuotaKind::Group, 101), (0, 1));
    limit_space(&fs, QuotaKind::Project, 9, 8);
    refused(fs.set_project(&ANNA, f.ino(), 9), libc::EDQUOT);
    assert_eq!(fs.project(f.ino()).unwrap(), 0);
    drop((f, g));
    close(fs, &device);
    // Limits still apply after a mount.
    let fs = open(&device);
    let ino = fs.lookup(ROOT_INO, b"file").unwrap().ino;
    let f = fs.open_inode(&ANNA, ino, libc::O_RDWR).unwrap();
    refused(fs.write(&ANNA, &f, 1 << 20, &[1], false), libc::EDQUOT);
}

#[test]
fn soft_limits_hold_when_the_grace_time_is_over() {
    let device = volume(32, 4096, "");
    let fs = open(&device);
    let soft = Limits {
        space_soft: 8,
        inodes_soft: 1,
        ..Limits::default()
    };
    fs.set_limits(QuotaKind::User, 1000, soft).unwrap();
    let f = file(&fs, &ANNA, ROOT_INO, "file");
    fs.write(&ANNA, &f, 0, &[1; 12 << 10], false).unwrap();
    drop(file(&fs, &ANNA, ROOT_INO, "2"));
    let times = |fs: &Fs| {
        let usage = fs.quota().unwrap();
        let entry = usage[0].entries.iter().find(|e| e.id == 1000).copied();
        entry.map(|e| (e.space_time, e.inode_time)).unwrap()
    };
    let now = fs.vol.seconds();
    let week = 7 * 86_400;
    let (space, inodes) = times(&fs);
    assert!((now + week - 60..=now + week).contains(&space), "{space}");
    assert!((now + week - 60..=now + week).contains(&inodes), "{inodes}");
    // A week later.
    {
        let mut all = fs.inodes.quotas().unwrap().accounts.lock();
        let account = all[0].by_id.get_mut(&1000).unwrap();
        (account.entry.space_time, account.entry.inode_time) = (now, now);
    }
    refused(fs.write(&ANNA, &f, 12 << 10, &[1], false), libc::EDQUOT);
    let made = fs.mknod(&ANNA, ROOT_INO, b"3", libc::S_IFREG | 0o644, 0, 0);
    refused(made, libc::EDQUOT);
    let shorter = SetAttr {
        size: Some(8 << 10),
        ..SetAttr::default()
    };
    fs.setattr(&ANNA, f.ino(), &shorter).unwrap();
    fs.unlink(&ANNA, ROOT_INO, b"2").unwrap();
    assert_eq!(times(&fs), (0, 0));
    fs.write(&ANNA, &f, 8 << 10, &[1], false).unwrap();
    drop(f);
    close(fs, &device);
}

#[test]
fn threads_share_a_limit_to_the_block() {
    let device = volume(64, 4096, "");
    let fs = open(&device);
    limit_space(&fs, QuotaKind::User, 1000, 4000);
    let inodes = Limits {
        inodes_hard: 40,
        ..Limits::default()
    };
    fs.set_limits(QuotaKind::Project, 0, Limits::default())
        .unwrap();
    fs.set_limits(QuotaKind::Group, 100, inodes).unwrap();
    std::thread::scope(|scope| {
        for t in 0..6u64 {
            let fs = &fs;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(t);
                for i in 0..60 {
                    let name = format!("{t}-{i}");
                    let made = fs.create(&ANNA, ROOT_INO, name.as_bytes(), 0o644, 0, libc::O_RDWR);
                    let (attr, f) = match made {
                        Err(e) if e.errno() == libc::EDQUOT => {
                            let name = format!("{t}-{}", rng.u32(..i.max(1)));
                            let _ = fs.unlink(&ANNA, ROOT_INO, name.as_bytes());
                            continue;
                        }
                        made => made.unwrap(),
                    };
                    fs.forget(attr.ino, 1);
                    let at = rng.u64(..64) << 12;
                    match fs.write(&ANNA, &f, at, &vec![1; rng.usize(1..300_000)], false) {
                        Err(e) => assert_eq!(e.errno(), libc::EDQUOT),
                        Ok(n) => assert!(n > 0),
                    }
                    let used = used(fs, QuotaKind::User, 1000);
                    assert!(used.0 <= 4000 && used.1 <= 40, "{used:?}");
                }
            });
        }
    });
    // Nothing is promised any more, so one file can take all that is left.
    let all = fs.inodes.quotas().unwrap().accounts.lock();
    for account in all.iter().flat_map(|a| a.by_id.values()) {
        assert_eq!((account.promised_space, account.promised_inodes), (0, 0));
    }
    drop(all);
    let (space, inodes) = used(&fs, QuotaKind::User, 1000);
    if inodes < 40 && space < 4000 {
        let f = file(&fs, &ANNA, ROOT_INO, "last");
        let wrote = fs.write(&ANNA, &f, 0, &vec![1; 4 << 20], false).unwrap();
        assert_eq!(wrote as u64 >> 10, 4000 - space);
    }
    close(fs, &device);
}

/// Opens an account of one kind while a file of Anna, whose entry is in the same leaf, takes space;
/// then closes the volume.
#[cfg(debug_assertions)]
fn open_an_account_beside_a_write(kind: QuotaKind, canary: Canary) -> Arc<MemDevice> {
    let device = volume(32, 4096, "");
    let options = FsOptions {
        canary,
        ..FsOptions::default()
    };
    let fs = Fs::open(device.clone(), options).unwrap();
    let f = file(&fs, &ANNA, ROOT_INO, "file");
    fs.set_project(&Ctx::ROOT, f.ino(), 7).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let hold = Hold::at(&*fs, "write-quota-block");
        scope.spawn(|| fs.set_limits(kind, 2000, Limits::default()).unwrap());
        hold.await_one();
        let (fs, f) = (&fs, &f);
        scope.spawn(move || {
            fs.write(&ANNA, f, 0, &[1; 9000], false).unwrap();
            done.send(()).unwrap();
        });
        // The write is done, or waits for the account.
        let _ = is_done.recv_timeout(std::time::Duration::from_millis(300));
        drop(hold);
    });
    drop(f);
    fs.unmount().unwrap();
    device
}

/// quota.Q1 and quota.Q4. With the canary `leaf-unlocked` e2fsck finds wrong usage.
#[cfg(debug_assertions)]
#[test]
fn an_account_is_opened_beside_changes_of_others() {
    for kind in QuotaKind::ALL {
        for leaf_unlocked in [false, true] {
            let canary = Canary {
                leaf_unlocked,
                ..Canary::default()
            };
            let device = open_an_account_beside_a_write(kind, canary);
            let found = image(&device).e2fsck_fn();
            assert_eq!(found.is_err(), leaf_unlocked, "{kind:?}: {found:?}");
        }
    }
}

/// Inline content that moves out takes a block, within the limits.
#[test]
fn inline_content_moves_out_within_the_limits() {
    let device = volume(32, 4096, "inline_data");
    let fs = open(&device);
    let f = file(&fs, &ANNA, ROOT_INO, "file");
    let ino = f.ino();
    drop(f);
    close(fs, &device);
    let copy = image(&device);
    std::fs::write(copy.dir().join("small"), "inline").unwrap();
    let small = copy.dir().join("small");
    let request = format!("write {} small", small.display());
    copy.debugfs_write(&request).unwrap();
    for (field, value) in [("uid", 1000), ("gid", 100)] {
        let request = format!("set_inode_field small {field} {value}");
        copy.debugfs_write(&request).unwrap();
    }
    copy.e2fsck_fy().unwrap();
    let device = Arc::new(MemDevice::load(copy.path()).unwrap());
    let fs = open(&device);
    let small = fs.lookup(ROOT_INO, b"small").unwrap().ino;
    assert_ne!(small, ino);
    assert_eq!(used(&fs, QuotaKind::User, 1000), (0, 2));
    limit_space(&fs, QuotaKind::User, 1000, 3);
    let f = fs.open_inode(&ANNA, small, libc::O_RDWR).unwrap();
    fs.forget(small, 1);
    fs.write(&ANNA, &f, 6, b" still", false).unwrap();
    refused(fs.write(&ANNA, &f, 0, &[1; 1000], false), libc::EDQUOT);
    let mut content = [0; 20];
    let n = fs.read(&f, 0, &mut content).unwrap();
    assert_eq!(&content[..n], b"inline still");
    limit_space(&fs, QuotaKind::User, 1000, 4);
    fs.write(&ANNA, &f, 0, &[1; 1000], false).unwrap();
    assert_eq!(used(&fs, QuotaKind::User, 1000), (4, 2));
    drop(f);
    close(fs, &device);
}

/// With records of files, a sync on a volume with quota takes a commit, and counts the reason.
#[test]
fn syncs_by_record_take_a_commit() {
    let device = volume(64, 4096, "");
    let options = FsOptions {
        journal: "ordered,records=1".parse().unwrap(),
        ..FsOptions::default()
    };
    let fs = Fs::open(device.clone(), options.clone()).unwrap();
    let f = file(&fs, &ANNA, ROOT_INO, "file");
    fs.write(&ANNA, &f, 0, &[1; 9000], false).unwrap();
    let (send, wait) = std::sync::mpsc::channel();
    fs.fsync(
        &f,
        false,
        Wait::Deferred,
        Box::new(move |r| send.send(r).unwrap()),
    );
    wait.recv().unwrap().unwrap();
    let stats = fs.stats();
    assert_eq!(stats.journal.file_records, 0);
    let quota = stats.sync_reasons.iter().find(|(why, _)| *why == "quota");
    assert_eq!(quota, Some(&("quota", 1)));
    let crashed = Arc::new(device.fork());
    drop(f);
    drop(fs);
    let fs = Fs::open(crashed.clone(), options).unwrap();
    assert_eq!(used(&fs, QuotaKind::User, 1000), (12, 1));
    close(fs, &crashed);
}

/// Damaged quota files are found when the volume is opened for writing, and nothing is written
/// then.
#[test]
fn damaged_quota_files_are_refused_for_writing() {
    let fresh = volume(16, 4096, "");
    let fs = open(&fresh);
    drop(file(&fs, &ANNA, ROOT_INO, "file"));
    let inode = fs
        .inodes
        .iget_special(stetfs_ondisk::ext4::superblock::USR_QUOTA_INO)
        .unwrap();
    let start = match fs.data.map(&inode, &inode.body.read(), 0, 1).unwrap() {
        crate::data::Mapping::Mapped { start, .. } => start * 4096,
        hole => panic!("{hole:?}"),
    };
    drop(inode);
    close(fs, &fresh);
    use stetfs_block::BlockDevice;
    let wild = u32::MAX.to_le_bytes();
    // Magic; version; a list of free leaves that leads outside the file; references to the root,
    // outside the file, and to a leaf without the id.
    for (at, bytes) in [
        (0, [1, 2, 3, 4]),
        (4, [0; 4]),
        (28, wild),
        (1024, [1, 0, 0, 0]),
        (1024, wild),
        (1028, [2, 0, 0, 0]),
        (2048, wild),
    ] {
        let device = Arc::new(fresh.fork());
        device.write(start + at, &bytes).unwrap();
        let mut before = vec![0; device.size() as usize];
        device.read(0, &mut before).unwrap();
        let e = Fs::open(device.clone(), FsOptions::default())
            .err()
            .unwrap();
        assert!(e.to_string().contains("quota file"), "{at}: {e}");
        let mut after = vec![0; device.size() as usize];
        device.read(0, &mut after).unwrap();
        assert!(before == after, "{at}: something was written");
        let options = FsOptions {
            read_only: true,
            ..FsOptions::default()
        };
        let fs = Fs::open(device, options).unwrap();
        assert!(fs.lookup(ROOT_INO, b"file").is_ok());
        assert!(fs.quota().is_err());
    }
}
