//! Large and nearly full volumes: the cost of operations must not grow with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stetfs_block::MemDevice;
use stetfs_ext4::{Ctx, Fs, FsOptions, ROOT_INO};
use stetfs_testkit::{Image, Mkfs};

fn volume(bytes: u64, mkfs: &Mkfs) -> (Arc<MemDevice>, Arc<Fs>) {
    let image = Image::make(bytes, mkfs).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    (device, fs)
}

fn check(device: &MemDevice) {
    let image = Image::sparse(0).unwrap();
    device.save(image.path()).unwrap();
    image.e2fsck_fn().unwrap();
}

#[test]
fn a_terabyte_opens_fast_and_works() {
    let mkfs = Mkfs::blocks(4096)
        .usage("largefile")
        .extended("lazy_itable_init=1,nodiscard,packed_meta_blocks=1");
    let (device, fs) = volume(1 << 40, &mkfs);
    fs.unmount().unwrap();
    drop(fs);
    let start = Instant::now();
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?} to open");
    for d in 0..50 {
        let name = format!("dir{d}");
        let dir = fs
            .mkdir(&Ctx::ROOT, ROOT_INO, name.as_bytes(), 0o755, 0)
            .unwrap();
        for f in 0..20 {
            let name = format!("file{f}");
            let (_, file) = fs
                .create(&Ctx::ROOT, dir.ino, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                .unwrap();
            fs.write(&Ctx::ROOT, &file, 0, &[1; 10_000], false).unwrap();
        }
    }
    fs.unmount().unwrap();
    check(&device);
}

#[test]
fn a_nearly_full_volume_is_not_slow() {
    let (device, fs) = volume(512 << 20, &Mkfs::blocks(1024).journal_mib(8));
    // Two files grow side by side by one block each; then one is deleted, so every other block is
    // free.
    let files: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| {
            let (_, file) = fs
                .create(
                    &Ctx::ROOT,
                    ROOT_INO,
                    name.as_bytes(),
                    0o644,
                    0,
                    libc::O_RDWR,
                )
                .unwrap();
            file
        })
        .collect();
    let chunk = vec![5; 1 << 20];
    let mut at = 0;
    let full = loop {
        match fs.write(&Ctx::ROOT, &files[0], at, &chunk, false) {
            Ok(n) => at += n as u64,
            Err(e) => break e.errno(),
        }
    };
    assert_eq!(full, libc::ENOSPC);
    // Holes all over the full volume.
    let mut hole = 0;
    while hole < at {
        let mode = stetfs_ext4::FallocateMode::PunchHole;
        fs.fallocate(&Ctx::ROOT, &files[0], mode, hole, 1024)
            .unwrap();
        hole += 16 << 10;
    }
    let start = Instant::now();
    let mut written = 0;
    loop {
        match fs.write(&Ctx::ROOT, &files[1], written, &[6; 4096], false) {
            Ok(n) => written += n as u64,
            Err(e) => {
                assert_eq!(e.errno(), libc::ENOSPC);
                break;
            }
        }
    }
    let each = start.elapsed() / (written / 1024).max(1) as u32;
    assert!(written > 10 << 20, "{written} bytes fitted");
    assert!(each < Duration::from_millis(1), "{each:?} for each block");
    drop(files);
    fs.unmount().unwrap();
    check(&device);
}
