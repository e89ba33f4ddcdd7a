//! Unlinked and truncated files over a crash, from StetFS and from the kernel.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use stetfs_block::MemDevice;
use stetfs_ext4::{Ctx, Fs, FsOptions, OpenRef, ROOT_INO, SetAttr};
use stetfs_testkit::loopdev::{LoopDev, LoopOptions};
use stetfs_testkit::sys::Shutdown;
use stetfs_testkit::{Image, KernelMount, Mkfs};

/// Orphans in the file, on the list, and with small blocks.
fn kinds() -> [Mkfs; 3] {
    [
        Mkfs::blocks(4096).feature("orphan_file"),
        Mkfs::blocks(4096).feature("^orphan_file"),
        Mkfs::blocks(1024).feature("^orphan_file,^flex_bg"),
    ]
}

fn kernel(image: &Image) -> KernelMount {
    let device = LoopDev::attach(image.path(), LoopOptions::default()).unwrap();
    KernelMount::new(device, "ext4", "").unwrap()
}

fn load(image: &Image) -> Arc<MemDevice> {
    Arc::new(MemDevice::load(image.path()).unwrap())
}

fn save(device: &MemDevice) -> Image {
    let image = Image::sparse(0).unwrap();
    device.save(image.path()).unwrap();
    image
}

fn open(device: &Arc<MemDevice>) -> Arc<Fs> {
    Fs::open(device.clone(), FsOptions::default()).unwrap()
}

fn sync(fs: &Fs) {
    let (tx, rx) = mpsc::channel();
    fs.sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
}

#[test]
fn the_kernels_orphans_are_deleted() {
    for mkfs in kinds() {
        let image = Image::make(48 << 20, &mkfs).unwrap();
        let before = {
            let fs = Fs::open(
                load(&image),
                FsOptions {
                    read_only: true,
                    ..FsOptions::default()
                },
            )
            .unwrap();
            fs.statfs()
        };
        let mount = kernel(&image);
        let mut open_files = Vec::new();
        let path = |i: u32| mount.path().join(format!("file{i}"));
        for i in 0..20 {
            let file = File::create(path(i)).unwrap();
            // Every other block, so that some trees are deep.
            for k in 0..(if i % 5 == 0 { 900 } else { 3 }) {
                file.write_all_at(&[7; 512], k * 8192).unwrap();
            }
            file.sync_all().unwrap();
            open_files.push(file);
        }
        for i in 0..20 {
            fs::remove_file(path(i)).unwrap();
        }
        fs::write(mount.path().join("stays"), b"content").unwrap();
        File::open(mount.path().join("stays"))
            .unwrap()
            .sync_all()
            .unwrap();
        mount
            .crash(Shutdown::LogFlush, || drop(open_files))
            .unwrap();

        let device = load(&image);
        let fs = open(&device);
        let after = fs.statfs();
        assert_eq!(after.ffree, before.ffree - 1, "{mkfs:?}");
        assert_eq!(after.bfree, before.bfree - 1, "{mkfs:?}");
        let stays = fs.lookup(ROOT_INO, b"stays").unwrap();
        assert_eq!(stays.size, 7);
        fs.unmount().unwrap();
        save(&device).e2fsck_fn().unwrap();
    }
}

/// Makes open files without names, and a large file that is being truncated at the crash.
fn leave_orphans(fs: &Arc<Fs>) -> Vec<OpenRef> {
    let mut open = Vec::new();
    for i in 0..20u64 {
        let name = format!("file{i}");
        let (_, file) = fs
            .create(
                &Ctx::ROOT,
                ROOT_INO,
                name.as_bytes(),
                0o600,
                0,
                libc::O_RDWR,
            )
            .unwrap();
        for k in 0..(if i % 5 == 0 { 300 } else { 3 }) {
            fs.write(&Ctx::ROOT, &file, k * 8192, &[7; 512], false)
                .unwrap();
        }
        open.push(file);
    }
    for i in 0..20 {
        let name = format!("file{i}");
        fs.unlink(&Ctx::ROOT, ROOT_INO, name.as_bytes()).unwrap();
    }
    open
}

#[test]
fn our_orphans_are_deleted_by_us_the_kernel_and_e2fsck() {
    for mkfs in kinds() {
        let image = Image::make(48 << 20, &mkfs).unwrap();
        let device = load(&image);
        let fs = open(&device);
        let before = fs.statfs();
        let files = leave_orphans(&fs);
        sync(&fs);
        let crashed = device.fork();
        drop(files);
        drop(fs);

        let ours = Arc::new(crashed.fork());
        let again = open(&ours);
        assert_eq!(again.statfs(), before, "{mkfs:?}");
        again.unmount().unwrap();
        save(&ours).e2fsck_fn().unwrap();

        let image = save(&crashed);
        let mount = kernel(&image);
        assert_eq!(entries(mount.path()), ["lost+found"]);
        mount.umount().unwrap();
        image.e2fsck_fn().unwrap();

        let image = save(&crashed);
        image.e2fsck_fy().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// A truncation of many transactions, with the power cut at every moment that the device shows.
#[test]
fn a_truncation_is_finished_after_a_crash() {
    let image = Image::make(48 << 20, &Mkfs::blocks(1024).journal_mib(1)).unwrap();
    let device = load(&image);
    let fs = open(&device);
    let (attr, file) = fs
        .create(&Ctx::ROOT, ROOT_INO, b"big", 0o600, 0, libc::O_RDWR)
        .unwrap();
    for k in 0..4000u64 {
        fs.write(&Ctx::ROOT, &file, k * 2048, &[9; 700], false)
            .unwrap();
    }
    sync(&fs);
    let full = fs.getattr(attr.ino).unwrap().blocks;
    let mut crashed = Vec::new();
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| {
            let size = SetAttr {
                size: Some(100_000),
                ..SetAttr::default()
            };
            fs.setattr(&Ctx::ROOT, attr.ino, &size).unwrap();
        });
        while !cut.is_finished() {
            crashed.push(device.fork());
            std::thread::yield_now();
        }
    });
    sync(&fs);
    crashed.push(device.fork());
    let seen = crashed.len();
    let step = seen.div_ceil(12);
    let mut cut = 0;
    for fork in crashed.into_iter().rev().step_by(step) {
        let fork = Arc::new(fork);
        let again = open(&fork);
        let now = again.getattr(attr.ino).unwrap();
        assert!(
            (now.size, now.blocks) == (3999 * 2048 + 700, full)
                || (now.size == 100_000 && now.blocks < full / 40),
            "{} bytes in {} sectors",
            now.size,
            now.blocks
        );
        cut += u32::from(now.size == 100_000);
        again.unmount().unwrap();
        save(&fork).e2fsck_fn().unwrap();
    }
    assert!(cut > 0);
}
