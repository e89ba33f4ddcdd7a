//! Tests of requests other than writes on a file under an atomic write.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use stetfs_testkit::cmd;

use super::{ABORT, COMMIT, START, becomes, copy, ioctl, mount, open, refusal};
use crate::common::stetfs_with;

/// Setting the size by another descriptor, by name, or by opening is refused.
#[test]
fn only_who_began_sets_the_size() {
    for options in ["journal=data,atomic", "journal=data,atomic,direct_io"] {
        let (image, mounted) = mount(options);
        let path = mounted.path().join("db");
        std::fs::write(&path, "content").unwrap();
        let (db, another) = (open(&path), open(&path));
        ioctl(&db, START).unwrap();
        db.write_all_at(b"C", 0).unwrap();
        for size in [0, 3, 9] {
            assert_eq!(refusal(another.set_len(size)), libc::EBUSY);
            assert_eq!(refusal(truncate(&path, size)), libc::EBUSY);
        }
        assert_eq!(refusal(File::create(&path)), libc::EBUSY);
        assert_eq!(refusal(another.write_all_at(b"x", 3)), libc::EBUSY);
        assert_eq!(std::fs::read(&path).unwrap(), b"Content");
        // link(2) also tells the kernel the size of the file.
        db.write_all_at(b"s", 7).unwrap();
        std::fs::hard_link(&path, mounted.path().join("link")).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 8);
        db.set_len(4).unwrap();
        ioctl(&db, COMMIT).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"Cont");
        another.set_len(3).unwrap();
        truncate(&path, 2).unwrap();
        drop(File::create(&path).unwrap());
        assert_eq!(path.metadata().unwrap().len(), 0);
        drop((db, another));
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// truncate(2), by path.
fn truncate(path: &Path, size: u64) -> io::Result<()> {
    const SCRIPT: &str = "
import os, sys
try:
    os.truncate(sys.argv[1], int(sys.argv[2]))
except OSError as e:
    sys.exit(e.errno)
";
    let mut python = Command::new("python3");
    let python = python.args(["-c", SCRIPT]).arg(path).arg(size.to_string());
    match python.status().unwrap().code().unwrap() {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Requests that report about the content agree with reads.
#[test]
fn seeks_and_copies_see_what_reads_see() {
    use rustix::fs::{SeekFrom, copy_file_range, seek};
    for options in ["journal=data,atomic", "journal=data,atomic,direct_io"] {
        let (image, mounted) = mount(options);
        let path = mounted.path().join("db");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let (db, another) = (open(&path), open(&path));
        ioctl(&db, START).unwrap();
        db.set_len(100).unwrap();
        db.write_all_at(&[2; 5000], 40_960).unwrap();
        let ends = ["copy", "committed"].map(|name| mounted.path().join(name));
        let sees = |to: &Path| {
            for file in [&db, &another] {
                let data = |at| seek(file, SeekFrom::Data(at)).unwrap();
                let hole = |at| seek(file, SeekFrom::Hole(at)).unwrap();
                assert_eq!((data(4096), hole(40_960)), (40_960, 45_960), "{options}");
                assert_eq!((data(0), hole(8000)), (0, 8000));
                let behind = seek(file, SeekFrom::Data(45_960)).unwrap_err();
                assert_eq!(behind, rustix::io::Errno::NXIO);
                let (copy, mut at) = (File::create(to).unwrap(), 0);
                while copy_file_range(file, Some(&mut at), &copy, None, 1 << 20).unwrap() > 0 {}
                let seen = std::fs::read(to).unwrap();
                assert!(seen == std::fs::read(&path).unwrap());
                assert_eq!(
                    (seen.len(), seen[99], seen[100], seen[40_960]),
                    (45_960, 1, 0, 2)
                );
            }
        };
        sees(&ends[0]);
        ioctl(&db, COMMIT).unwrap();
        sees(&ends[1]);
        drop((db, another));
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// Preallocating, zeroing, punching and copying belong to the atomic write for its holder, and are
/// refused to others.
#[test]
fn ranges_change_with_the_rest() {
    use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
    let (punch, keep) = (FallocateFlags::PUNCH_HOLE, FallocateFlags::KEEP_SIZE);
    let zero = FallocateFlags::ZERO_RANGE;
    for options in ["journal=data,atomic", "journal=stet,atomic,direct_io"] {
        let (image, mounted) = mount(options);
        let (path, other) = (mounted.path().join("db"), mounted.path().join("other"));
        let old = vec![1; 50_000];
        std::fs::write(&path, &old).unwrap();
        std::fs::write(&other, [3; 7000]).unwrap();
        rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
        let (db, another, from) = (open(&path), open(&path), open(&other));
        let mut new = old.clone();
        new[1000..6000].fill(0);
        new[10_000..30_000].fill(0);
        new[40_000..47_000].fill(3);
        new.resize(60_000, 0);
        for commits in [false, true] {
            ioctl(&db, START).unwrap();
            for flags in [
                FallocateFlags::empty(),
                keep,
                punch | keep,
                zero,
                zero | keep,
            ] {
                let refused = fallocate(&another, flags, 1000, 5000);
                assert_eq!(refused, Err(rustix::io::Errno::BUSY));
            }
            let refused = copy_file_range(&from, Some(&mut 0), &another, Some(&mut 0), 7000);
            assert_eq!(refused, Err(rustix::io::Errno::BUSY));
            fallocate(&db, punch | keep, 1000, 5000).unwrap();
            fallocate(&db, zero | keep, 10_000, 20_000).unwrap();
            fallocate(&db, FallocateFlags::empty(), 45_000, 15_000).unwrap();
            fallocate(&db, keep, 0, 60_000).unwrap();
            let behind = fallocate(&db, keep, 0, 60_001);
            assert_eq!(behind, Err(rustix::io::Errno::OPNOTSUPP));
            let huge = fallocate(&db, FallocateFlags::empty(), 0, 1 << 30);
            assert_eq!(huge, Err(rustix::io::Errno::FBIG));
            let n = copy_file_range(&from, Some(&mut 0), &db, Some(&mut 40_000), 7000);
            assert_eq!(n, Ok(7000));
            assert!(std::fs::read(&path).unwrap() == new, "{options}");
            let before = copy(image.path());
            match commits {
                true => ioctl(&db, COMMIT).unwrap(),
                false => ioctl(&db, ABORT).unwrap(),
            };
            let after = copy(image.path());
            let left = if commits { &new } else { &old };
            becomes(&path, left);
            for (image, expected) in [(before, &old), (after, left)] {
                let mounted = stetfs_with("").mount(&image.1).unwrap();
                assert!(std::fs::read(mounted.path().join("db")).unwrap() == *expected);
                mounted.umount().unwrap();
            }
        }
        // After an abort these requests do not complete the write either.
        ioctl(&db, START).unwrap();
        drop(db.try_clone().unwrap());
        let refused = fallocate(&db, punch | keep, 1000, 5000);
        assert_eq!(refused, Err(rustix::io::Errno::IO));
        let refused = copy_file_range(&from, Some(&mut 0), &db, Some(&mut 0), 7000);
        assert_eq!(refused, Err(rustix::io::Errno::IO));
        drop((db, another, from));
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// A handle whose atomic write was aborted gets an error from its next operation, whatever that is,
/// and whichever handle had the file meanwhile.
#[test]
fn a_handle_that_was_not_told_changes_nothing() {
    let (_image, mounted) = mount("journal=data,atomic");
    let path = mounted.path().join("db");
    std::fs::write(&path, "old").unwrap();
    let (db, another) = (open(&path), open(&path));
    for meanwhile in [false, true] {
        ioctl(&db, START).unwrap();
        db.write_all_at(b"n", 0).unwrap();
        drop(db.try_clone().unwrap());
        if meanwhile {
            ioctl(&another, START).unwrap();
            ioctl(&another, COMMIT).unwrap();
        }
        assert_eq!(refusal(db.set_len(1)), libc::EIO);
        assert_eq!(refusal(db.write_all_at(b"w", 2)), libc::EIO);
        another.write_all_at(b"o", 0).unwrap();
        ioctl(&db, ABORT).unwrap();
        db.set_len(3).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
    drop((db, another));
    mounted.umount().unwrap();
}

/// A user who may not keep set-user-id removes it by writing, at once: also by an atomic write.
#[test]
fn a_program_that_is_overwritten_atomically_is_nobody_elses() {
    let (_image, mounted) = mount("journal=data,atomic");
    let path = mounted.path().join("program");
    std::fs::write(&path, "old").unwrap();
    for (mode, left) in [(0o6777, 0o777), (0o777, 0o777)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let script = "
import fcntl, os, sys
os.setgid(1)
os.setuid(1)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(fd, 0xf501)
os.pwrite(fd, b'new', 0)
fcntl.ioctl(fd, 0xf502)
";
        let mut writes = Command::new("python3");
        cmd::run(writes.args(["-c", script]).arg(&path)).unwrap();
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, left);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
    mounted.umount().unwrap();
}
