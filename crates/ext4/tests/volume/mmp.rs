//! Multiple mount protection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_ext4::{Ctx, Fs, FsError, FsOptions, ROOT_INO};
use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::mmp::{Mmp, SEQ_CLEAN, SEQ_FSCK};
use stetfs_testkit::{Image, Mkfs, wait_until};

const SECOND: Duration = Duration::from_millis(20);

fn volume(features: &str) -> Arc<MemDevice> {
    let mkfs = Mkfs::blocks(4096)
        .feature(features)
        .extended("mmp_update_interval=1");
    let image = Image::make(32 << 20, &mkfs).unwrap();
    Arc::new(MemDevice::load(image.path()).unwrap())
}

fn open(device: &Arc<MemDevice>) -> Result<Arc<Fs>, FsError> {
    let opts = FsOptions {
        mmp_second: SECOND,
        ..FsOptions::default()
    };
    Fs::open(device.clone(), opts)
}

/// Offset of the block, and its checksum mode.
fn place(device: &MemDevice) -> (u64, ChecksumMode) {
    let mut head = vec![0; 1024];
    device.read(1024, &mut head).unwrap();
    let sb = stetfs_ondisk::ext4::superblock::Superblock::decode(&head).unwrap();
    (sb.mmp_block.get() * 4096, sb.checksum_mode())
}

fn block(device: &MemDevice) -> Mmp {
    let (at, mode) = place(device);
    let mut bytes = vec![0; 4096];
    device.read(at, &mut bytes).unwrap();
    Mmp::decode(&bytes, &mode).unwrap()
}

fn change(device: &MemDevice, change: impl FnOnce(&mut Mmp)) {
    let (at, mode) = place(device);
    let mut mmp = block(device);
    change(&mut mmp);
    device.write(at, mmp.first_sector(&mode)).unwrap();
}

fn in_use(device: &Arc<MemDevice>) -> String {
    match open(device) {
        Err(e @ FsError::InUse(_)) => {
            assert_eq!(e.errno(), libc::EBUSY);
            e.to_string()
        }
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("a volume in use was opened"),
    }
}

#[test]
fn the_block_is_the_same_when_an_image_is_made_again() {
    for features in ["mmp", "mmp,^metadata_csum"] {
        let mkfs = volume(features);
        let made = |time: u64| {
            let device = Arc::new(mkfs.fork());
            // The state that mke2fs leaves, which contains the time of the clock.
            let ((at, mode), mut mmp) = (place(&device), block(&device));
            mmp.time.set(time);
            device.write(at, mmp.made_plain(&mode)).unwrap();
            let opts = FsOptions {
                mmp_second: SECOND,
                epoch: Some(1_000_000),
                ..FsOptions::default()
            };
            Fs::open(device.clone(), opts).unwrap().unmount().unwrap();
            let _right = block(&device);
            let mut bytes = vec![0; 4096];
            device.read(place(&device).0, &mut bytes).unwrap();
            bytes
        };
        assert!(made(1) == made(2), "{features}");
    }
}

#[test]
fn kept_up_while_open_and_released() {
    for features in ["mmp", "mmp,^metadata_csum"] {
        let device = volume(features);
        assert_eq!(block(&device).seq.get(), SEQ_CLEAN);
        let fs = open(&device).unwrap();
        let first = block(&device);
        assert!(first.seq.get() < SEQ_FSCK && !first.node().is_empty());
        wait_until("it is kept up", || block(&device).seq != first.seq);
        // The other machine.
        assert!(in_use(&device).contains(&first.node()));
        fs.unmount().unwrap();
        assert_eq!(block(&device).seq.get(), SEQ_CLEAN);
        drop(fs);
        open(&device).unwrap().unmount().unwrap();
        let image = Image::sparse(0).unwrap();
        device.save(image.path()).unwrap();
        image.e2fsck_fn().unwrap();
    }
}

#[test]
fn e2fsck_at_work_is_respected() {
    let device = volume("mmp");
    change(&device, |mmp| mmp.seq.set(SEQ_FSCK));
    let before = device.fork();
    assert!(in_use(&device).contains("e2fsck"));
    assert!(device.differences(&before).is_empty(), "it was written to");
}

#[test]
fn after_a_crash_it_opens_again() {
    let device = volume("mmp");
    let fs = open(&device).unwrap();
    let crashed = Arc::new(device.fork());
    fs.unmount().unwrap();
    assert_ne!(block(&crashed).seq.get(), SEQ_CLEAN);
    let fs = open(&crashed).unwrap();
    fs.unmount().unwrap();
    assert_eq!(block(&crashed).seq.get(), SEQ_CLEAN);
}

#[test]
fn who_lost_the_volume_stops_writing() {
    let device = volume("mmp");
    let fs = open(&device).unwrap();
    change(&device, |mmp| {
        mmp.seq.set(77);
        mmp.nodename[..5].copy_from_slice(b"other");
    });
    let ctx = Ctx {
        uid: 0,
        gid: 0,
        pid: 1,
    };
    let begun = Instant::now();
    let mut n = 0;
    let e = loop {
        n += 1;
        match fs.mkdir(&ctx, ROOT_INO, format!("dir{n}").as_bytes(), 0o755, 0) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(20), "it goes on"),
            Err(e) => break e,
        }
        std::thread::sleep(SECOND / 4);
    };
    assert_eq!(e.errno(), libc::EROFS);
    assert!(fs.unmount().is_err());
    assert_eq!(
        block(&device).seq.get(),
        77,
        "the other's block was written"
    );
}

#[test]
fn a_damaged_block_is_told() {
    let device = volume("mmp");
    let (at, _) = place(&device);
    for offset in [0, 4] {
        let device = Arc::new(device.fork());
        device.write(at + offset, &[1, 2, 3]).unwrap();
        let e = open(&device).err().unwrap();
        assert!(e.to_string().contains("MMP block"), "{e}");
        assert_eq!(e.errno(), libc::EUCLEAN);
    }
}
