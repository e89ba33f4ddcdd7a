//! Mount options that change when and what is written: each means what it means to the kernel's
//! ext4.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::daemon::{Daemon, json, ok};
use crate::common::stetfs_with;
use stetfs_testkit::{Image, Mkfs, Mounter, wait_until};

/// Options for the kernel, and the same for StetFS.
fn both(options: &str) -> [Mounter; 2] {
    [Mounter::ext4(options), stetfs_with(options)]
}

fn image() -> Image {
    Image::make(128 << 20, &Mkfs::new()).unwrap()
}

/// Bytes that the image takes on its host.
fn used(image: &Image) -> u64 {
    image.path().metadata().unwrap().blocks() * 512
}

fn sync(root: &Path) {
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

/// Reads a byte past the page cache, which would answer without asking.
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

/// Access times are seen at once, and are on the volume after a sync, an fsync, and the unmount.
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

/// What it is for: reading writes nothing, in three times the time in which it does without.
#[test]
fn lazytime_commits_nothing_for_reads() {
    // Mounts, reads, and gives `wait` a way to see how many commits there were since.
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

/// What nobody syncs is on the device when it has its age: overwrites in place, and new data of
/// files whose size a commit told.
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
        // Brings all home.
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
