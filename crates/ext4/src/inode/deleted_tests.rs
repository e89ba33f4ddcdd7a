//! Operations on an inode while it is being deleted. A kernel never forgets an inode that it still
//! uses, but a program that imitates a kernel can.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use stetfs_testkit::Mkfs;

use crate::error::Result;
use crate::fs::Fs;
use crate::testing::{fsck, mkfs, open};
use crate::types::{Caller, Ctx, Ino, ROOT_INO, SetAttr, XattrSet};

type Operation = fn(&Fs, Ino) -> Result<()>;

const OPERATIONS: [Operation; 5] = [
    |fs, ino| fs.setxattr(&Ctx::ROOT, ino, b"user.a", b"value", XattrSet::Any),
    |fs, ino| fs.set_flags(&Ctx::ROOT, ino, 0x8_0040),
    |fs, ino| fs.set_project(&Ctx::ROOT, ino, 7),
    |fs, ino| {
        let mode = SetAttr {
            mode: Some(0o640),
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, ino, &mode).map(drop)
    },
    |fs, ino| {
        let size = SetAttr {
            size: Some(9000),
            ..SetAttr::default()
        };
        fs.setattr(&Ctx::ROOT, ino, &size).map(drop)
    },
];

/// The operation waits for the inode's lock when the last user releases it (inode.I5).
#[test]
fn a_change_of_what_is_being_deleted_is_whole_or_refused() {
    let device = mkfs(16, &Mkfs::blocks(1024).feature("project"));
    let fs = open(&device);
    for operation in OPERATIONS {
        let (attr, file) = fs
            .tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)
            .unwrap();
        drop(file);
        let inode = fs.inodes.iget(attr.ino).unwrap();
        let held = inode.body.write();
        let users = Arc::strong_count(&inode);
        thread::scope(|scope| {
            let fs = &fs;
            let change = scope.spawn(move || operation(fs, attr.ino));
            while Arc::strong_count(&inode) == users {
                thread::yield_now();
            }
            scope.spawn(move || fs.forget(attr.ino, 1));
            while !inode.dead.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(held);
            let changed = change.join().unwrap().map_err(|e| e.errno());
            assert!(matches!(changed, Ok(()) | Err(libc::ESTALE)), "{changed:?}");
        });
        assert!(inode.deleted.load(Ordering::Acquire));
    }
    fs.unmount().unwrap();
    fsck(&device);
}

/// The caller has the file as if open in the kernel, and writes after it was forgotten.
#[test]
fn what_is_deleted_takes_no_writes() {
    for features in ["inline_data", "^inline_data"] {
        let device = mkfs(16, &Mkfs::blocks(1024).feature(features));
        let fs = open(&device);
        let (attr, file) = fs
            .tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)
            .unwrap();
        drop(file);
        let nobody = Caller {
            pid: 0,
            descriptor: |_| None,
        };
        let unheld = fs.unheld(attr.ino, libc::O_RDWR, nobody).unwrap();
        fs.forget(attr.ino, 1);
        for len in [10, 10_000] {
            let written = fs.write(&Ctx::ROOT, &unheld, 0, &vec![7; len], false);
            assert_eq!(written.unwrap_err().errno(), libc::ESTALE);
        }
        drop(unheld);
        fs.unmount().unwrap();
        fsck(&device);
    }
}

/// The writer has the lock first: the deletion waits for it, and frees what was written (inode.I5).
#[test]
fn who_has_the_lock_goes_on_while_the_last_user_lets_go() {
    for features in ["inline_data", "^inline_data"] {
        let device = mkfs(16, &Mkfs::blocks(1024).feature(features));
        let fs = open(&device);
        let (attr, file) = fs
            .tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)
            .unwrap();
        let inode = fs.inodes.iget(attr.ino).unwrap();
        inode.dead.store(true, Ordering::Release);
        for len in [10, 10_000] {
            assert_eq!(
                fs.write(&Ctx::ROOT, &file, 0, &vec![7; len], false)
                    .unwrap(),
                len
            );
        }
        fs.delete_inode(&inode);
        assert!(inode.deleted.load(Ordering::Acquire));
        drop((file, inode));
        fs.forget(attr.ino, 1);
        fs.unmount().unwrap();
        fsck(&device);
    }
}

/// A caller that guesses the number of a file that is being made finds that file or none
/// (inode.I1).
#[test]
fn a_guessed_number_is_of_one_inode() {
    let device = mkfs(16, &Mkfs::blocks(1024));
    let fs = open(&device);
    thread::scope(|scope| {
        let fs = &fs;
        let maker = scope.spawn(move || {
            for _ in 0..3000 {
                let (attr, file) = fs
                    .tmpfile(&Ctx::ROOT, ROOT_INO, 0o600, 0, libc::O_RDWR)
                    .unwrap();
                drop(file);
                fs.forget(attr.ino, 1);
            }
        });
        while !maker.is_finished() {
            (12..40).for_each(|ino| drop(fs.inodes.iget(ino)));
        }
    });
    fs.unmount().unwrap();
    fsck(&device);
}
