#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::time::Timestamp;
use stetfs_testkit::Mkfs;

use super::{Inode, OrphanPlace};
use crate::fs::Fs;
use crate::space::credits;
use crate::testing::{fsck, mkfs, new_file, open};
use crate::types::{Ctx, FsOptions, ROOT_INO, SetAttr, TimeSet};

fn nameless(fs: &Fs, mode: u32) -> Arc<Inode> {
    let root = fs.inodes.iget(ROOT_INO).unwrap();
    let body = root.body.write();
    let h = fs
        .vol
        .journal
        .begin(credits::NEW_INODE + credits::ORPHAN)
        .unwrap();
    let inode = new_file(fs, &h, (&root, &body), mode).unwrap();
    fs.abandon_inode(&h, &inode, &mut inode.lock_new()).unwrap();
    inode
}

#[test]
fn a_crash_leaves_orphans_that_the_next_mount_deletes() {
    let with_file = Mkfs::blocks(4096)
        .feature("orphan_file")
        .extended("orphan_file_size=2");
    for options in [with_file, Mkfs::blocks(4096).feature("^orphan_file")] {
        for count in [1, 7, 2500] {
            let device = mkfs(64, &options);
            let fs = open(&device);
            let (blocks, inodes) = (fs.space.free_blocks_count(), fs.space.free_inodes_count());
            let made: Vec<_> = (0..count)
                .map(|_| nameless(&fs, libc::S_IFREG | 0o600))
                .collect();
            // The two blocks of the file have room for 1022 orphans each; the others go to the
            // list.
            let listed = made
                .iter()
                .filter(|i| i.body.read().orphan == Some(OrphanPlace::List));
            let room = if fs.inodes.orphans().has_file() {
                2 * 1022
            } else {
                0
            };
            assert_eq!(listed.count(), usize::saturating_sub(count, room));
            // Some are deleted in between: from the middle of the list and from its ends.
            for inode in made.iter().step_by(3) {
                fs.iput(inode);
            }
            fs.vol.journal.commit_all().unwrap();
            let crashed = Arc::new(device.fork());
            drop((made, fs));

            let again = open(&crashed);
            assert_eq!(
                (
                    again.space.free_blocks_count(),
                    again.space.free_inodes_count()
                ),
                (blocks, inodes),
                "{count}"
            );
            again.unmount().unwrap();
            fsck(&crashed);
        }
    }
}

/// A file without a name stays an orphan when its size changes.
#[test]
fn a_truncated_file_without_a_name_is_still_an_orphan() {
    for options in [
        Mkfs::blocks(4096),
        Mkfs::blocks(4096).feature("^orphan_file"),
    ] {
        let device = mkfs(64, &options);
        let fs = open(&device);
        let (blocks, inodes) = (fs.space.free_blocks_count(), fs.space.free_inodes_count());
        let (attr, file) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"f", 0o600, 0, libc::O_RDWR)
            .unwrap();
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"f").unwrap();
        for size in [50_000, 3_000, 0, 9_000] {
            let set = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            fs.setattr(&Ctx::ROOT, attr.ino, &set).unwrap();
        }
        fs.vol.journal.commit_all().unwrap();
        let crashed = Arc::new(device.fork());
        drop((file, fs));

        let again = open(&crashed);
        assert_eq!(
            (
                again.space.free_blocks_count(),
                again.space.free_inodes_count()
            ),
            (blocks, inodes)
        );
        again.unmount().unwrap();
        fsck(&crashed);
    }
}

/// A deletion removes the inode from the cache after its handle has stopped. If the transaction
/// commits just then, another thread's new file may have the number.
#[test]
fn a_new_file_with_the_number_of_a_deleted_one_stays() {
    let stays = |drop_any_inode| {
        let opts = FsOptions {
            canary: stetfs_journal::Canary {
                drop_any_inode,
                ..Default::default()
            },
            ..FsOptions::default()
        };
        let fs = Fs::open(mkfs(16, &Mkfs::blocks(1024)), opts).unwrap();
        let old = nameless(&fs, libc::S_IFREG | 0o600);
        fs.iput(&old);
        fs.vol.journal.commit_all().unwrap();
        let new = nameless(&fs, libc::S_IFREG | 0o600);
        assert_eq!(new.ino, old.ino, "the lowest free number is taken");
        fs.inodes.drop_inode(&old);
        let cached = fs.inodes.iget_special(new.ino).unwrap();
        Arc::ptr_eq(&cached, &new)
    };
    assert!(stays(false));
    assert!(!stays(true), "the fault takes it out");
}

/// inode.I3, inode.I4.
#[test]
fn an_inode_stays_while_it_is_open_or_remembered() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let free = fs.space.free_inodes_count();
    let inode = nameless(&fs, libc::S_IFREG | 0o600);
    let ino = inode.ino;
    let file = fs.open_ref(inode.clone(), libc::O_RDWR).unwrap();
    fs.inodes.count_lookup(ino);
    fs.inodes.count_lookup(ino);
    fs.iput(&inode);
    assert!(fs.inodes.iget(ino).is_ok());
    drop(file);
    fs.forget(ino, 1);
    assert!(fs.inodes.iget(ino).is_ok());
    fs.forget(ino, 1);
    assert_eq!(
        fs.inodes.iget(ino).err().map(|e| e.errno()),
        Some(libc::ESTALE)
    );
    assert_eq!(fs.space.free_inodes_count(), free);
    assert_eq!(
        fs.open_ref(inode, 0).err().map(|e| e.errno()),
        Some(libc::ESTALE)
    );
}

#[test]
fn numbers_come_back_after_the_commit_with_another_generation() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    let first = nameless(&fs, libc::S_IFREG);
    let generation = first.body.read().generation();
    fs.iput(&first);
    assert_ne!(nameless(&fs, libc::S_IFREG).ino, first.ino);
    fs.vol.journal.commit_all().unwrap();
    let again = nameless(&fs, libc::S_IFREG);
    assert_eq!(again.ino, first.ino);
    assert_ne!(again.body.read().generation(), generation);
}

/// inode.I2.
#[test]
fn the_cache_is_bounded_and_loses_nothing() {
    let device = mkfs(256, &Mkfs::blocks(4096));
    let fs = open(&device);
    let root = fs.inodes.iget(ROOT_INO).unwrap();
    let mut made = Vec::new();
    for i in 0..40_000u32 {
        let body = root.body.write();
        let h = fs.vol.journal.begin(credits::NEW_INODE + 1).unwrap();
        let inode = new_file(&fs, &h, (&root, &body), libc::S_IFREG | 0o600).unwrap();
        let mut body = inode.lock_new();
        body.set_uid(i);
        fs.inodes.write_inode(&h, &inode, &mut body).unwrap();
        made.push(inode.ino);
    }
    let (held, _) = fs.inodes.counts();
    assert!(held < 20_000, "{held} inodes in memory");
    for (i, ino) in made.iter().enumerate() {
        assert_eq!(fs.getattr(*ino).unwrap().uid, i as u32);
    }
    // A sync of an inode that left memory and was loaded again still waits for its last change.
    let back = fs.inodes.iget(made[0]).unwrap();
    assert!(!back.metadata.lock().upto(true).is_none());
}

#[test]
fn setattr_sets_what_stat_shows() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device);
    let inode = nameless(&fs, libc::S_IFREG | 0o6755);
    let ino = inode.ino;
    let _open = fs.open_ref(inode, 0).unwrap();
    let set = |set: SetAttr| fs.setattr(&Ctx::ROOT, ino, &set);
    let at = |sec| TimeSet::At(Timestamp { sec, nsec: 5 });
    let a = set(SetAttr {
        atime: Some(at(1)),
        mtime: Some(at(1 << 33)),
        ..SetAttr::default()
    })
    .unwrap();
    assert_eq!((a.atime.sec, a.mtime.sec, a.mtime.nsec), (1, 1 << 33, 5));
    assert_eq!(a.mode & 0o7777, 0o6755);
    let a = set(SetAttr {
        uid: Some(70_000),
        gid: Some(5),
        ..SetAttr::default()
    })
    .unwrap();
    assert_eq!((a.uid, a.gid, a.mode & 0o7777), (70_000, 5, 0o755));
    let a = set(SetAttr {
        mode: Some(0o4711),
        ..SetAttr::default()
    })
    .unwrap();
    assert_eq!(a.mode & 0o7777, 0o4711);
    let a = set(SetAttr {
        size: Some(1 << 40),
        ..SetAttr::default()
    })
    .unwrap();
    assert_eq!((a.size, a.blocks, a.mode & 0o7777), (1 << 40, 0, 0o4711));
    let user = Ctx {
        uid: 1000,
        gid: 1000,
        pid: 1,
    };
    let a = fs
        .setattr(
            &user,
            ino,
            &SetAttr {
                size: Some(10),
                ..SetAttr::default()
            },
        )
        .unwrap();
    assert_eq!((a.size, a.mode & 0o7777), (10, 0o711));
    assert_eq!(
        set(SetAttr {
            size: Some(1 << 60),
            ..SetAttr::default()
        })
        .unwrap_err()
        .errno(),
        libc::EFBIG
    );
    let dir = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    assert_eq!(
        fs.setattr(&Ctx::ROOT, ROOT_INO, &dir).unwrap_err().errno(),
        libc::EISDIR
    );
    assert_eq!(
        fs.setattr(&Ctx::ROOT, 4_000_000, &dir).unwrap_err().errno(),
        libc::ESTALE
    );
    assert_eq!(
        fs.setattr(&Ctx::ROOT, 8, &dir).unwrap_err().errno(),
        libc::ESTALE
    );
}

#[test]
fn immutable_and_append_only_inodes_say_eperm() {
    let device = mkfs(32, &Mkfs::blocks(4096));
    let fs = open(&device);
    let inode = nameless(&fs, libc::S_IFREG | 0o644);
    let ino = inode.ino;
    let _open = fs.open_ref(inode.clone(), 0).unwrap();
    let flag = |flags: InodeFlags| {
        let mut body = inode.body.write();
        let h = fs.vol.journal.begin(1).unwrap();
        body.set_flags(InodeFlags::EXTENTS | flags);
        fs.inodes.write_inode(&h, &inode, &mut body).unwrap();
    };
    let fails = |set: SetAttr| fs.setattr(&Ctx::ROOT, ino, &set).err().map(|e| e.errno());
    let opens = |flags| {
        fs.open_inode(&Ctx::ROOT, ino, flags)
            .err()
            .map(|e| e.errno())
    };
    let now = SetAttr {
        mtime: Some(TimeSet::Now),
        ..SetAttr::default()
    };
    let chmod = SetAttr {
        mode: Some(0),
        ..SetAttr::default()
    };
    flag(InodeFlags::IMMUTABLE);
    assert_eq!(
        (fails(now.clone()), fails(chmod.clone())),
        (Some(libc::EPERM), Some(libc::EPERM))
    );
    assert_eq!(
        (opens(libc::O_RDONLY), opens(libc::O_RDWR)),
        (None, Some(libc::EPERM))
    );
    flag(InodeFlags::APPEND);
    assert_eq!((fails(now), fails(chmod)), (None, Some(libc::EPERM)));
    assert_eq!(opens(libc::O_WRONLY), Some(libc::EPERM));
    assert_eq!(opens(libc::O_WRONLY | libc::O_APPEND), None);
    assert_eq!(
        opens(libc::O_WRONLY | libc::O_APPEND | libc::O_TRUNC),
        Some(libc::EPERM)
    );
    flag(InodeFlags::empty());
    assert_eq!(opens(libc::O_RDWR | libc::O_TRUNC), None);
}
