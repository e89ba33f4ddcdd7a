//! Failing devices, and power cuts while a volume is being opened or closed.

use std::sync::Arc;
use std::sync::mpsc;

use stetfs_block::{Fault, FaultInjector, MemDevice, Op};
use stetfs_ext4::{Ctx, Fs, FsOptions, ROOT_INO, StatFs};
use stetfs_testkit::{Image, Mkfs};

fn fresh(mkfs: &Mkfs) -> MemDevice {
    let image = Image::make(24 << 20, mkfs).unwrap();
    MemDevice::load(image.path()).unwrap()
}

fn check(device: &MemDevice) {
    let image = Image::sparse(0).unwrap();
    device.save(image.path()).unwrap();
    image.e2fsck_fn().unwrap();
}

fn sync(fs: &Fs) -> Result<(), i32> {
    let (tx, rx) = mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().map_err(|e| e.errno())
}

fn create(fs: &Fs, name: &str) -> Result<(), i32> {
    let made = fs.create(
        &Ctx::ROOT,
        ROOT_INO,
        name.as_bytes(),
        0o644,
        0,
        libc::O_RDWR,
    );
    let (attr, file) = made.map_err(|e| e.errno())?;
    let written = fs.write(&Ctx::ROOT, &file, 0, &[3; 3000], false);
    drop(file);
    fs.forget(attr.ino, 1);
    written.map(|_| ()).map_err(|e| e.errno())
}

#[test]
fn a_failing_device_turns_the_volume_read_only() {
    let device = Arc::new(FaultInjector::new(fresh(&Mkfs::blocks(4096))));
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    create(&fs, "before").unwrap();
    sync(&fs).unwrap();
    create(&fs, "after").unwrap();
    device.add(Fault::fail(Op::Write, libc::EIO));
    assert_eq!(sync(&fs), Err(libc::EIO));
    assert!(fs.is_read_only());
    assert_eq!(create(&fs, "later"), Err(libc::EROFS));
    assert!(fs.lookup(ROOT_INO, b"before").is_ok(), "reading goes on");
    assert!(fs.unmount().is_err());
    drop(fs);

    device.clear();
    let again = Arc::new(device.inner().fork());
    let fs = Fs::open(again.clone(), FsOptions::default()).unwrap();
    fs.lookup(ROOT_INO, b"before").unwrap();
    assert!(fs.lookup(ROOT_INO, b"after").is_err());
    fs.unmount().unwrap();
    check(&again);
}

/// A volume that crashed with files that were unlinked but open.
fn crashed(mkfs: &Mkfs) -> (MemDevice, StatFs) {
    let device = Arc::new(fresh(mkfs));
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    for i in 0..30 {
        create(&fs, &format!("file{i}")).unwrap();
    }
    sync(&fs).unwrap();
    let expected = fs.statfs();
    let mut open = Vec::new();
    for i in 0..12u64 {
        let name = format!("gone{i}");
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
        for k in 0..=i * 3 {
            fs.write(&Ctx::ROOT, &file, k * 9000, &[1; 100], false)
                .unwrap();
        }
        fs.unlink(&Ctx::ROOT, ROOT_INO, name.as_bytes()).unwrap();
        open.push(file);
    }
    sync(&fs).unwrap();
    let fork = device.fork();
    drop(open);
    drop(fs);
    (fork, expected)
}

#[test]
fn power_may_go_at_any_write_of_opening_and_closing() {
    for feature in ["orphan_file", "^orphan_file"] {
        let (base, expected) = crashed(&Mkfs::blocks(1024).feature(feature).journal_mib(1));
        let mut n = 0;
        loop {
            let device = Arc::new(FaultInjector::new(base.fork()));
            device.power_off_after(n);
            if let Ok(fs) = Fs::open(device.clone(), FsOptions::default()) {
                let _ = fs.unmount();
            }
            let whole = !device.is_off();
            // The volume is opened again after the crash, and nothing is lost or leaked.
            let left = Arc::new(device.inner().fork());
            let fs = Fs::open(left.clone(), FsOptions::default()).unwrap();
            assert_eq!(
                fs.statfs(),
                expected,
                "{feature}, power off after {n} writes"
            );
            fs.lookup(ROOT_INO, b"file29").unwrap();
            fs.unmount().unwrap();
            drop(fs);
            check(&left);
            if whole {
                break;
            }
            n += 1;
        }
        assert!(n > 8, "{feature}: opening took {n} writes");
    }
}
