//! The suite, stamped for every backend.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::PathBuf;

use stetfs_block::{BlockDevice, Direct, FileDevice, MemDevice, OpenOptions, Uring, suite};
use tempfile::TempDir;

/// A file system of a disk, not tmpfs: /tmp may be one, the target directory hardly.
fn dir() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn image(dir: &TempDir, size: u64) -> PathBuf {
    let path = dir.path().join("volume.img");
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

const SIZE: u64 = 1 << 20;

/// One test per backend: its name, and an expression for the device in a scratch directory.
macro_rules! stamp {
    ($($name:ident: |$dir:ident| $make:expr;)*) => {$(
        #[test]
        fn $name() {
            let $dir = dir();
            let dev = $make;
            for seed in 1..4 {
                suite::check_all(&dev, seed);
            }
        }
    )*};
}

fn open(dir: &TempDir, size: u64, direct: Direct, uring: Uring) -> FileDevice {
    FileDevice::open(
        image(dir, size),
        OpenOptions {
            direct,
            uring,
            ..Default::default()
        },
    )
    .unwrap()
}

stamp! {
    memory: |_d| MemDevice::new(SIZE);
    memory_odd_size: |_d| MemDevice::new(300_001);
    memory_fork: |_d| MemDevice::from_image(&[3; 200_000]).fork();
    file_default: |d| FileDevice::open(image(&d, SIZE), OpenOptions::default()).unwrap();
    file_direct_uring: |d| open(&d, SIZE, Direct::Required, Uring::Auto);
    file_direct_syscalls: |d| open(&d, SIZE, Direct::Required, Uring::Off);
    file_buffered_uring: |d| open(&d, SIZE, Direct::Off, Uring::Auto);
    file_buffered_syscalls: |d| open(&d, SIZE, Direct::Off, Uring::Off);
    file_odd_size: |d| open(&d, 300_001, Direct::Auto, Uring::Auto);
    file_ends_inside_a_page: |d| open(&d, 300 * 1024 + 512, Direct::Auto, Uring::Auto);
    file_direct_turned_off: |d| {
        let dev = open(&d, SIZE, Direct::Auto, Uring::Auto);
        dev.fit_granularity(1).unwrap();
        assert!(!dev.is_direct());
        dev
    };
}

#[test]
fn rings_and_o_direct_are_used_where_the_suite_says_so() {
    let d = dir();
    let dev = open(&d, SIZE, Direct::Required, Uring::Auto);
    assert!(dev.is_direct() && dev.uses_uring());
    assert!(dev.dio_align() >= 512 && dev.dio_align() <= 4096);
    dev.fit_granularity(4096).unwrap();
    assert!(dev.is_direct());
}

#[test]
fn an_image_of_odd_size_is_buffered_and_keeps_its_size() {
    let d = dir();
    let dev = open(&d, 300_001, Direct::Auto, Uring::Auto);
    assert!(!dev.is_direct());
    dev.write(300_000, &[1]).unwrap();
    dev.flush().unwrap();
    drop(dev);
    let path = d.path().join("volume.img");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 300_001);
    let refused = FileDevice::open(
        &path,
        OpenOptions {
            direct: Direct::Required,
            ..Default::default()
        },
    );
    assert_eq!(refused.err().unwrap().errno(), libc::EINVAL);
}
