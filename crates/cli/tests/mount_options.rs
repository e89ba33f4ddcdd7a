//! Tests of mount options that change when and how data is written: each has the meaning that it
//! has for the kernel's ext4.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::daemon::{Daemon, fails, json, ok};
use crate::common::stetfs_with;
use stetfs_testkit::{Image, Mkfs, Mounter, cmd, wait_until};

/// The same options for the kernel and for StetFS.
fn both(options: &str) -> [Mounter; 2] {
    [Mounter::ext4(options), stetfs_with(options)]
}

fn image() -> Image {
    Image::make(128 << 20, &Mkfs::new()).unwrap()
}

/// Disk space of the image, bytes.
fn used(image: &Image) -> u64 {
    image.path().metadata().unwrap().blocks() * 512
}

fn sync(root: &Path) {
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

/// Reads a byte directly, because the page cache would answer without a request.
fn read(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file.read_at(&mut [0], 0).unwrap();
}

fn atime(path: &Path) -> (i64, i64) {
    let meta = path.metadata().unwrap();
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn discard_gives_back_what_is_deleted() {
    let clusters = || Mkfs::new().feature("bigalloc").feature("^resize_inode");
    for mkfs in [Mkfs::new, clusters] {
        for mounter in both("discard") {
            discards(&mounter, &mkfs());
        }
    }
}

fn discards(mounter: &Mounter, mkfs: &Mkfs) {
    let what = mounter.name();
    let image = Image::make(128 << 20, mkfs).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let path = mounted.path().join("large");
    let mut data = vec![0; 40 << 20];
    fastrand::Rng::with_seed(7).fill(&mut data);
    std::fs::write(&path, &data).unwrap();
    std::fs::write(mounted.path().join("stays"), &data[..1 << 20]).unwrap();
    sync(mounted.path());
    let full = used(&image);
    std::fs::remove_file(&path).unwrap();
    sync(mounted.path());
    // The kernel discards after the commit, in the background.
    wait_until(format!("{what}: the discard"), || {
        used(&image) + (35 << 20) < full
    });
    assert!(std::fs::read(mounted.path().join("stays")).unwrap() == data[..1 << 20]);
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    assert!(std::fs::read(mounted.path().join("stays")).unwrap() == data[..1 << 20]);
    mounted.umount().unwrap();
}

#[test]
fn without_discard_nothing_is_given_back() {
    for mounter in both("nodiscard") {
        let image = image();
        let mounted = mounter.mount(image.path()).unwrap();
        let path = mounted.path().join("large");
        std::fs::write(&path, vec![7; 20 << 20]).unwrap();
        sync(mounted.path());
        let full = used(&image);
        std::fs::remove_file(&path).unwrap();
        sync(mounted.path());
        std::thread::sleep(Duration::from_millis(300));
        assert!(used(&image) + (1 << 20) > full, "{}", mounter.name());
        mounted.umount().unwrap();
    }
}

#[test]
fn strictatime_notes_every_read_and_noatime_none() {
    for (options, moves) in [("strictatime", true), ("noatime", false)] {
        for mounter in both(options) {
            let what = mounter.name();
            let image = image();
            let mounted = mounter.mount(image.path()).unwrap();
            let path = mounted.path().join("f");
            std::fs::write(&path, "text").unwrap();
            let mut last = atime(&path);
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(20));
                read(&path);
                if moves {
                    wait_until(format!("{what}: a new access time"), || atime(&path) > last);
                } else {
                    std::thread::sleep(Duration::from_millis(50));
                    assert_eq!(atime(&path), last, "{what}");
                }
                last = atime(&path);
            }
            mounted.umount().unwrap();
            let mounted = mounter.mount(image.path()).unwrap();
            assert_eq!(
                atime(&mounted.path().join("f")),
                last,
                "{what}, mounted again"
            );
            mounted.umount().unwrap();
        }
    }
}

/// Access times are visible at once, and reach the volume with a sync, an fsync, or the unmount.
#[test]
fn lazytime_keeps_access_times_for_later() {
    for mounter in both("lazytime,strictatime") {
        let what = mounter.name();
        let image = image();
        let mounted = mounter.mount(image.path()).unwrap();
        let path = mounted.path().join("f");
        std::fs::write(&path, "text").unwrap();
        sync(mounted.path());
        let before = atime(&path);
        std::thread::sleep(Duration::from_millis(20));
        read(&path);
        wait_until(format!("{what}: a new access time"), || {
            atime(&path) > before
        });
        let seen = atime(&path);
        mounted.umount().unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        assert_eq!(
            atime(&mounted.path().join("f")),
            seen,
            "{what}: after the unmount"
        );

        let path = mounted.path().join("f");
        std::thread::sleep(Duration::from_millis(20));
        read(&path);
        wait_until(format!("{what}: a new access time"), || atime(&path) > seen);
        let seen = atime(&path);
        File::open(&path).unwrap().sync_all().unwrap();
        mounted.crash().unwrap();
        mounter.recover(image.path()).unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        assert_eq!(
            atime(&mounted.path().join("f")),
            seen,
            "{what}: fsync keeps it"
        );
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// The purpose of lazytime: reads cause no commits, in three times the time in which they do
/// without it.
#[test]
fn lazytime_commits_nothing_for_reads() {
    // Mounts and reads; `wait` gets a function that counts the commits since.
    let with_reads = |options: &str, wait: &mut dyn FnMut(&dyn Fn() -> u64)| {
        let mount = Daemon::new(options);
        for i in 0..50 {
            std::fs::write(mount.file(&format!("f{i}")), "text").unwrap();
        }
        sync(&mount.dir);
        let commits = || {
            json(&["stat", mount.dir()])["journal"]["commits"]
                .as_u64()
                .unwrap()
        };
        let before = commits();
        for i in 0..50 {
            read(&mount.file(&format!("f{i}")));
        }
        wait(&|| commits() - before);
        ok(&["umount", mount.dir()]);
        mount.image.e2fsck_fn().unwrap();
    };
    let mut took = Duration::ZERO;
    with_reads("commit=1,strictatime", &mut |commits| {
        let begin = Instant::now();
        wait_until("a commit for reads", || commits() > 0);
        took = begin.elapsed();
    });
    with_reads("commit=1,strictatime,lazytime", &mut |commits| {
        std::thread::sleep(3 * took);
        assert_eq!(commits(), 0);
    });
}

/// Unsynced data is on the device at the age of `dirty_expire`: overwrites in place, and new data
/// of files whose size is committed.
#[test]
fn dirty_expire_is_the_age_at_which_data_is_written() {
    for preset in ["ordered", "writeback", "ijournal"] {
        let mount = Daemon::new(&format!("journal={preset},dirty_expire=3600,commit=3600"));
        let path = mount.file("f");
        let file = File::create(&path).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        file.sync_all().unwrap();
        let ino = path.metadata().unwrap().ino();
        let lies = || mount.image.debugfs(&format!("cat <{ino}>")).unwrap();
        drop(file);
        let remount = |options: &str| {
            let options = format!("remount,{options}");
            ok(&["mount", "-o", &options, "none", mount.dir()]);
        };
        // The remount writes everything back.
        remount("dirty_expire=3601");
        assert_eq!(lies().as_bytes(), [1; 8192], "{preset}");
        let write = |byte| {
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[byte; 8192], 0).unwrap();
        };
        write(2);
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(lies().as_bytes(), [1; 8192], "{preset}");
        remount("dirty_expire=0.2");
        for byte in [3, 4] {
            write(byte);
            wait_until(format!("{preset}: write-back"), || {
                lies().as_bytes() == [byte; 8192]
            });
        }
        mount.crash();
        ok(&["recover", mount.image()]);
        assert_eq!(lies().as_bytes(), [4; 8192], "{preset}");
        mount.image.e2fsck_fn().unwrap();
    }
}

/// The options that only tune the kernel's ext4, as in lines of fstab.
const HOW_THE_KERNEL_DOES_IT: &str = "auto_da_alloc,auto_da_alloc=1,noauto_da_alloc,bh,nobh,\
    block_validity,noblock_validity,bsddf,nocheck,delalloc,nodelalloc,\
    dioread_lock,dioread_nolock,nodioread_nolock,i_version,init_itable,init_itable=10,\
    noinit_itable,inode_readahead_blks=0,inode_readahead_blks=64,journal_checksum,\
    nojournal_checksum,journal_ioprio=7,max_batch_time=15000,min_batch_time=0,mb_optimize_scan=0,\
    mb_optimize_scan=1,no_mbcache,nombcache,mblk_io_submit,nomblk_io_submit,oldalloc,orlov,\
    prefetch_block_bitmaps,no_prefetch_block_bitmaps,reservation,noreservation,stripe=0,stripe=16,\
    warn_on_error,nowarn_on_error";

#[test]
fn how_the_kernel_goes_about_things_is_taken_and_means_nothing() {
    let image = image();
    for mounter in both(HOW_THE_KERNEL_DOES_IT) {
        let mounted = mounter.mount(image.path()).unwrap();
        std::fs::write(mounted.path().join("f"), mounter.name()).unwrap();
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
    for wrong in [
        "auto_da_alloc=yes",
        "dioread_nolock=1",
        "init_itable=-1",
        "inode_readahead_blks=63",
        "inode_readahead_blks",
        "journal_ioprio=8",
        "mb_optimize_scan=2",
        "max_batch_time=long",
        "stripe",
        "stripe=4294967296",
        "i_version=1",
    ] {
        for mounter in both(wrong) {
            let refused = mounter.mount(image.path());
            assert!(refused.is_err(), "{}", mounter.name());
        }
    }
}

/// Options of the kernel that would have an effect here, too, are refused, not ignored.
#[test]
fn what_would_mean_something_is_refused() {
    let d = Daemon::unmounted(image());
    for option in [
        "abort",
        "dax",
        "debug",
        "grpjquota=aquota.group",
        "max_dir_size_kb=100",
        "minixdf",
        "nouid32",
        "resgid=7",
        "resuid=7",
        "sb=32768",
    ] {
        let unknown = format!("unknown option {option:?}");
        let args = ["mount", "-o", option, d.image(), d.dir()];
        fails(&args, 1, &[&unknown]);
    }
}

#[test]
fn nosymfollow_follows_no_symbolic_link() {
    let is_followed = |root: &Path| {
        // The link's target is visible in either case.
        assert_eq!(std::fs::read_link(root.join("l")).unwrap(), Path::new("f"));
        assert_eq!(std::fs::read(root.join("f")).unwrap(), b"text");
        let through = [root.join("l"), root.join("here/f")];
        let read = through.map(|path| std::fs::read(path).map_err(|e| e.raw_os_error()));
        match read {
            [Ok(one), Ok(other)] if (&one[..], &other[..]) == (b"text", b"text") => true,
            [Err(Some(libc::ELOOP)), Err(Some(libc::ELOOP))] => false,
            other => panic!("{other:?}"),
        }
    };
    let image = image();
    for mounter in both("") {
        let mounted = mounter.mount(image.path()).unwrap();
        let root = mounted.path();
        for name in ["l", "here", "f"] {
            let _ = std::fs::remove_file(root.join(name));
        }
        std::fs::write(root.join("f"), "text").unwrap();
        std::os::unix::fs::symlink("f", root.join("l")).unwrap();
        std::os::unix::fs::symlink(".", root.join("here")).unwrap();
        assert!(is_followed(root), "{}", mounter.name());
        let (program, before): (_, &[&str]) = match &mounter {
            Mounter::Kernel { .. } => (Path::new("mount"), &["-i"]),
            Mounter::Stetfs { binary, .. } => (binary.as_path(), &["mount"]),
        };
        let mut remount = Command::new(program);
        remount
            .args(before)
            .args(["-o", "remount,nosymfollow"])
            .arg(image.path())
            .arg(root);
        cmd::run(&mut remount).unwrap();
        assert!(!is_followed(root), "{}, remounted", mounter.name());
        mounted.umount().unwrap();
    }
    for mounter in both("nosymfollow") {
        let mounted = mounter.mount(image.path()).unwrap();
        assert!(!is_followed(mounted.path()), "{}", mounter.name());
        mounted.umount().unwrap();
    }
    image.e2fsck_fn().unwrap();
}
