//! Images whose file system shares blocks (FICLONERANGE): XFS and btrfs, by loop mount.
use std::fs::File;

use stetfs_block::{BlockDevice, FileDevice, OpenOptions, suite};
use stetfs_testkit::KernelMount;

/// Runs a test on an image of 4 MiB in a file system of this kind.
fn on(fstype: &str, mkfs: &[&str], test: impl FnOnce(&FileDevice)) {
    let (_disk, mount) = KernelMount::made(fstype, mkfs, 512 << 20).unwrap();
    let path = mount.path().join("image");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let device = FileDevice::open(&path, OpenOptions::default()).unwrap();
    test(&device);
    drop(device);
    mount.umount().unwrap();
}

/// A share needs a flush to be durable, so that flush is not left out although there was no write
/// since the last one.
fn shares(device: &FileDevice) {
    println!("{:?}", device.sharing());
    suite::shares(device, 5);
    device.write(0, &[7; 4096]).unwrap();
    device.flush().unwrap();
    let before = device.stats().flushes;
    let share = device.share().unwrap();
    share.share_range(8192, 0, 4096).unwrap();
    device.flush().unwrap();
    assert_eq!(device.stats().flushes, before + 1);
    let mut block = [0; 4096];
    device.read(8192, &mut block).unwrap();
    assert!(block == [7; 4096]);
}

#[test]
fn an_image_on_xfs_shares() {
    on("xfs", &["-q", "-m", "reflink=1"], shares);
}

#[test]
fn an_image_on_btrfs_shares() {
    on("btrfs", &["-q"], shares);
}

#[test]
fn an_image_elsewhere_does_not() {
    let none = |device: &FileDevice| {
        let why = device.sharing().unwrap_err();
        assert!(
            device.share().is_none() && why.contains("cannot share blocks"),
            "{why}"
        );
    };
    on("xfs", &["-q", "-m", "reflink=0"], none);
    on("ext4", &["-q", "-F"], none);
}
