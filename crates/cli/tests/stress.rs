//! Stress tests: many threads, a small journal, a full volume, and kills in the middle.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{assert_no_differences, kernel, number, seed, stetfs};
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::workload::fsync_all;
use stetfs_testkit::workload::mutate::Mutator;
use stetfs_testkit::{Image, Mkfs, Mounter};

const THREADS: u64 = 4;

/// A journal that wraps many times (1,024 blocks is mke2fs's minimum).
fn small_journal(block: u32) -> Mkfs {
    Mkfs::blocks(block).journal_mib(block / 1024)
}

fn start(mounter: &Mounter, mkfs: &Mkfs) -> (Image, stetfs_testkit::Mounted) {
    let image = Image::make(512 << 20, mkfs).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    (image, mounted)
}

fn workers(root: &Path, seed: u64) -> Vec<(Mutator, std::path::PathBuf)> {
    (0..THREADS)
        .map(|i| {
            let dir = root.join(format!("thread-{i}"));
            fs::create_dir(&dir).unwrap();
            (Mutator::new(seed + i), dir)
        })
        .collect()
}

/// Threads with a directory each, all fsyncing and syncing: none sees files of the others.
fn side_by_side(mounter: &Mounter) {
    let seed = seed("STETFS_STRESS_SEED");
    let operations = usize::try_from(number("STETFS_STRESS_OPS", 1_500)).unwrap();
    for block in [1024, 4096] {
        let (image, mounted) = start(mounter, &small_journal(block));
        let mut workers = workers(mounted.path(), seed);
        std::thread::scope(|scope| {
            for (work, dir) in &mut workers {
                scope.spawn(move || {
                    work.run(dir, operations).unwrap();
                    assert_no_differences("live", &work.verify(dir).unwrap());
                });
            }
        });
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        for (work, dir) in &workers {
            let dir = mounted.path().join(dir.file_name().unwrap());
            assert_no_differences("remounted", &work.verify(&dir).unwrap());
        }
        mounted.umount().unwrap();
    }
}

/// The same, killed in the middle, repeatedly on one volume: the synced files of each thread are
/// there.
fn killed(mounter: &Mounter) {
    let seed = seed("STETFS_STRESS_SEED");
    let (image, mounted) = start(mounter, &small_journal(4096));
    mounted.umount().unwrap();
    for cycle in 0..4 {
        let mounted = mounter.mount(image.path()).unwrap();
        let base = mounted.path().join(format!("cycle-{cycle}"));
        fs::create_dir(&base).unwrap();
        let mut workers = workers(&base, seed + cycle * THREADS);
        let stop = AtomicBool::new(false);
        let (marked, all_marked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|(work, dir)| {
                    let (stop, marked) = (&stop, marked.clone());
                    scope.spawn(move || {
                        work.run(dir, 100).unwrap();
                        work.sync_and_mark(dir).unwrap();
                        marked.send(()).unwrap();
                        // Works until the file system is gone.
                        while !stop.load(Ordering::Relaxed) && work.run(dir, 20).is_ok() {}
                    })
                })
                .collect();
            for _ in 0..THREADS {
                all_marked
                    .recv_timeout(Duration::from_secs(300))
                    .expect("every thread gets to its mark");
            }
            std::thread::sleep(Duration::from_millis(300));
            mounted
                .crash_with(Shutdown::NoLogFlush, || {
                    stop.store(true, Ordering::Relaxed);
                    for thread in running {
                        thread.join().unwrap();
                    }
                })
                .unwrap();
        });
        let mounted = mounter.mount(image.path()).unwrap();
        for (work, dir) in &workers {
            let dir = mounted
                .path()
                .join(format!("cycle-{cycle}"))
                .join(dir.file_name().unwrap());
            let what = format!("seed {seed}, cycle {cycle}, {}", dir.display());
            assert_no_differences(&what, &work.verify_marked(&dir).unwrap());
        }
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

/// Fills the volume to the last block. Earlier files stay, ENOSPC is reported, and the space comes
/// back.
fn full(mounter: &Mounter) {
    let image = Image::make(48 << 20, &small_journal(1024)).unwrap();
    let mounted = mounter.mount(image.path()).unwrap();
    let root = mounted.path();
    fs::write(root.join("before"), [1; 100_000]).unwrap();
    fsync_all(root).unwrap();
    for round in 0..2 {
        let mut written = 0u64;
        let mut files = 0;
        let error = loop {
            let path = root.join(format!("fill-{files}"));
            files += 1;
            let result = File::create(&path).and_then(|mut file| {
                file.write_all(&[files as u8; 70_000])?;
                file.sync_all()
            });
            match result {
                Ok(()) => written += 70_000,
                Err(e) => break e,
            }
            assert!(files < 5_000, "a volume of 48 MiB took {written} bytes");
        };
        assert_eq!(
            error.kind(),
            ErrorKind::StorageFull,
            "round {round}: {error}"
        );
        assert!(
            written > 30_000_000,
            "round {round}: full after {written} bytes"
        );
        // Small operations at the limit fail or succeed, but break nothing.
        for i in 0..200 {
            let _ = fs::create_dir(root.join(format!("dir-{round}-{i}")));
            let _ = fs::write(root.join(format!("small-{round}-{i}")), "x");
        }
        for i in 0..files - 1 {
            let data = fs::read(root.join(format!("fill-{i}"))).unwrap();
            assert!(
                data.len() == 70_000 && data.iter().all(|b| *b == (i + 1) as u8),
                "round {round}, file {i}"
            );
        }
        assert_eq!(fs::read(root.join("before")).unwrap(), [1; 100_000]);
        for entry in fs::read_dir(root).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("fill-") || name.starts_with("small-") {
                fs::remove_file(entry.path()).unwrap();
            } else if name.starts_with("dir-") {
                fs::remove_dir(entry.path()).unwrap();
            }
        }
        fsync_all(root).unwrap();
    }
    mounted.umount().unwrap();
    image.e2fsck_fn().unwrap();
}

#[test]
fn stetfs_side_by_side() {
    side_by_side(&stetfs());
}

#[test]
fn stetfs_killed() {
    killed(&stetfs());
}

#[test]
fn stetfs_full() {
    full(&stetfs());
}

/// Proves the tests themselves, on the kernel's ext4.
#[test]
fn harness() {
    side_by_side(&kernel());
    killed(&kernel());
    full(&kernel());
}
