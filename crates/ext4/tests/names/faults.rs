//! Failing devices during operations: each operation is complete, or leaves nothing behind.

use std::sync::Arc;

use stetfs_block::{BlockDevice, Fault, FaultInjector, Op};
use stetfs_ext4::{Ctx, Fs, FsOptions, Ino, ROOT_INO, RenameFlags, XattrSet};
use stetfs_testkit::{Image, Mkfs, wait_until};

use crate::names::support::{Random, Vol, device, small};

/// An image with some directories, one of them indexed.
fn prepared(mkfs: &Mkfs) -> (Image, Vec<Ino>) {
    let vol = Vol::new(32, mkfs);
    let dirs: Vec<Ino> = (0..4)
        .map(|i| vol.mkdir(ROOT_INO, format!("d{i}").as_bytes()).unwrap())
        .collect();
    for i in 0..3000 {
        vol.file(dirs[0], format!("a-rather-long-name-{i}").as_bytes())
            .unwrap();
    }
    (vol.close(), dirs)
}

fn step(vol: &Vol, dirs: &[Ino], random: &mut Random, values: bool) -> Result<(), i32> {
    let (a, b) = (dirs[random.below(4)], dirs[random.below(4)]);
    let name = |r: &mut Random| format!("a-rather-long-name-{}", r.below(4000)).into_bytes();
    let (n, m) = (name(random), name(random));
    match random.below(8) {
        0 | 1 => vol.file(a, &n).map(drop),
        2 => vol.mkdir(a, &n).map(drop),
        3 => vol.unlink(a, &n),
        4 => vol.rmdir(a, &n),
        5 => {
            let ino = vol.lookup(a, &n)?.ino;
            // With `ea_inode` most values have inodes of their own.
            let len = random.below(3) * 2 + 1;
            let value = vec![7; if values { 2000 * len } else { 100 * len }];
            let set = vol
                .fs
                .setxattr(&Ctx::ROOT, ino, b"user.large", &value, XattrSet::Any);
            set.map_err(|e| e.errno())
        }
        _ => vol.rename(
            (a, &n),
            (b, &m),
            RenameFlags {
                exchange: random.below(3) == 0,
                ..RenameFlags::default()
            },
        ),
    }
}

#[test]
fn failed_reads_leave_nothing_half_done() {
    failing(&small(), false);
}

#[test]
fn failed_reads_leave_no_value_half_referred_to() {
    failing(&small().feature("ea_inode"), true);
}

#[test]
fn failed_reads_leave_no_cluster_behind() {
    let mut mkfs = small().feature("bigalloc,^resize_inode");
    mkfs.args.extend(["-C".into(), "2048".into()]);
    failing(&mkfs, false);
}

fn failing(mkfs: &Mkfs, values: bool) {
    let (image, dirs) = prepared(mkfs);
    let mut failures = 0;
    for seed in 0..40 {
        let copy = image.copy().unwrap();
        let device = Arc::new(FaultInjector::new(device(copy.path())));
        // The cache is too small to keep what the operations need.
        let options = FsOptions {
            cache_bytes: 64 << 10,
            ..FsOptions::default()
        };
        let fs = Fs::open(Arc::clone(&device) as Arc<dyn BlockDevice>, options).unwrap();
        let vol = Vol { image: copy, fs };
        let mut random = Random::new(seed);
        for _ in 0..50 {
            let _ = step(&vol, &dirs, &mut random, values);
        }
        let mut chance = Random::new(seed + 1000);
        device.add(Fault::fail(Op::Read, libc::EIO).when(move |_, _| chance.below(6) == 0));
        for _ in 0..150 {
            match step(&vol, &dirs, &mut random, values) {
                Ok(()) => {}
                Err(libc::EIO | libc::EROFS) => failures += 1,
                Err(e) => assert!(
                    matches!(
                        e,
                        libc::ENOENT
                            | libc::EEXIST
                            | libc::ENOTEMPTY
                            | libc::EISDIR
                            | libc::ENOTDIR
                            | libc::EINVAL
                    ),
                    "seed {seed}: errno {e}"
                ),
            }
        }
        device.clear();
        let Vol { image, fs } = vol;
        let _ = fs.unmount();
        drop(fs);
        // Threads that reported the failure may not have ended yet.
        wait_until(format_args!("seed {seed}: the device is free"), || {
            Arc::strong_count(&device) == 1
        });
        drop(device);
        // Half of an operation is not there; an orphan that was left is deleted by the next mount.
        Vol::on(image).close();
    }
    assert!(failures > 50, "{failures} failures");
}
