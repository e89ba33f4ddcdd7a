//! Space in clusters (`bigalloc`): allocation and freeing of clusters, use together with the
//! kernel, damage.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_ext4::*;
use stetfs_testkit::{Image, KernelMount, LoopDev, Mkfs};

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

/// 8 blocks of 1 KiB.
const SHAPE: Shape = Shape {
    block_size: 1024,
    mib: 24,
    extents: true,
    cluster: 8,
};

/// The number of clusters of a file.
fn clusters(vol: &Volume, f: &OpenRef) -> u64 {
    let blocks = vol.fs().getattr(f.ino()).unwrap().blocks;
    assert_eq!(blocks % 16, 0);
    blocks / 16
}

fn write(vol: &Volume, f: &OpenRef, block: u64, blocks: usize) {
    let bytes = vec![block as u8 | 1; blocks * 1024];
    let n = vol.fs().write(&Ctx::ROOT, f, block * 1024, &bytes, false);
    assert_eq!(n.unwrap(), bytes.len());
}

fn punch(vol: &Volume, f: &OpenRef, block: u64, blocks: u64) {
    let mode = FallocateMode::PunchHole;
    vol.fs()
        .fallocate(&Ctx::ROOT, f, mode, block * 1024, blocks * 1024)
        .unwrap();
}

/// cluster.C2.
#[test]
fn a_cluster_is_taken_with_its_first_block_and_freed_with_its_last() {
    let mut vol = Volume::new(SHAPE, DataMode::Ordered);
    let f = vol.create("file");
    let free = |vol: &Volume| vol.fs().statfs().bfree;
    let before = free(&vol);
    // One block in the middle of each of four clusters, the second of them twice.
    for (block, have) in [(3, 1), (12, 2), (13, 2), (19, 3), (27, 4)] {
        write(&vol, &f, block, 1);
        assert_eq!(clusters(&vol, &f), have, "block {block}");
    }
    // From the middle of an own cluster into the next one and beyond.
    write(&vol, &f, 28, 8);
    assert_eq!(clusters(&vol, &f), 5);
    // Filling everything between needs no new cluster.
    write(&vol, &f, 0, 36);
    assert_eq!(clusters(&vol, &f), 5);
    assert_eq!(before - free(&vol), 5 * 8);
    // A hole that ends inside a cluster with more blocks behind, and one that begins inside a
    // cluster with blocks before.
    punch(&vol, &f, 4, 14);
    assert_eq!(clusters(&vol, &f), 4);
    punch(&vol, &f, 3, 16);
    assert_eq!(clusters(&vol, &f), 4);
    punch(&vol, &f, 19, 5);
    assert_eq!(clusters(&vol, &f), 3);
    vol.truncate(&f, 25 * 1024).unwrap();
    assert_eq!(clusters(&vol, &f), 2);
    vol.truncate(&f, 24 * 1024).unwrap();
    assert_eq!(clusters(&vol, &f), 1);
    // Allocated, unwritten blocks count the same.
    let mode = FallocateMode::Allocate { keep_size: true };
    vol.fs()
        .fallocate(&Ctx::ROOT, &f, mode, 5 * 1024, 12 * 1024)
        .unwrap();
    assert_eq!(clusters(&vol, &f), 3);
    punch(&vol, &f, 0, 3);
    assert_eq!(clusters(&vol, &f), 3);
    let content = vol.content(&f);
    assert!(content.iter().all(|b| *b == 0));
    drop(f);
    vol.reopen();
    let f = vol.open("file");
    assert_eq!(clusters(&vol, &f), 3);
    vol.truncate(&f, 0).unwrap();
    assert_eq!(clusters(&vol, &f), 0);
    drop(f);
    vol.reopen();
    assert_eq!(free(&vol), before);
}

#[test]
fn a_full_volume_still_has_room_in_the_clusters_of_a_file() {
    let vol = Volume::new(SHAPE, DataMode::Ordered);
    let f = vol.create("file");
    for cluster in 0..3 {
        write(&vol, &f, cluster * 8, 1);
    }
    let full = vol.create("full");
    let chunk = vec![7u8; 1 << 20];
    let mut at = 0;
    while let Ok(n) = vol.fs().write(&Ctx::ROOT, &full, at, &chunk, false) {
        at += n as u64;
    }
    assert_eq!(clusters(&vol, &full), at.div_ceil(8192));
    let before = vol.fs().statfs().bfree;
    for cluster in 0..3 {
        write(&vol, &f, cluster * 8 + 1, 7);
    }
    assert_eq!(vol.fs().statfs().bfree, before);
    let more = vol.fs().write(&Ctx::ROOT, &f, 24 * 1024, &chunk, false);
    assert_eq!(more.unwrap_err().errno(), libc::ENOSPC);
    drop((f, full));
    vol.finish();
}

#[test]
fn what_is_trimmed_is_free() {
    let mut vol = Volume::new(SHAPE, DataMode::Ordered);
    let f = vol.create("file");
    for i in 0..50 {
        write(&vol, &f, i * 11, 3);
    }
    let content = vol.content(&f);
    let gone = vol.create("gone");
    write(&vol, &gone, 0, 800);
    drop((f, gone));
    vol.fs().unlink(&Ctx::ROOT, ROOT_INO, b"gone").unwrap();
    vol.reopen();
    let free = vol.fs().statfs().bfree * 1024;
    assert_eq!(vol.fs().trim(0..u64::MAX, 0).unwrap(), free);
    // From inside a cluster to inside another one.
    let some = vol.fs().trim(8_195_000..9_000_000, 0).unwrap();
    assert!(
        some.is_multiple_of(8192) && some <= 9_000_000 - 8_195_000,
        "{some}"
    );
    vol.reopen();
    assert!(vol.content(&vol.open("file")) == content);
    vol.finish();
}

fn kernel(image: &Image) -> KernelMount {
    let device = LoopDev::attach(image.path(), Default::default()).unwrap();
    KernelMount::new(device, "ext4", "").unwrap()
}

/// One change of a file.
enum Step {
    Write(u64, usize),
    Truncate(u64),
    Punch(u64, u64),
    Allocate(u64, u64),
}

fn step(rng: &mut fastrand::Rng) -> Step {
    let at = rng.u64(..300_000);
    let len = [3000, 40_000, 200_000][rng.usize(..3)];
    let len = rng.u64(1..len);
    match rng.u8(..8) {
        0..4 => Step::Write(at, len as usize),
        4 => Step::Truncate(at),
        5 | 6 => Step::Punch(at, len),
        _ => Step::Allocate(at, len),
    }
}

fn in_model(model: &mut Vec<u8>, step: &Step, salt: u8) {
    match *step {
        Step::Write(at, len) => {
            let end = at as usize + len;
            model.resize(model.len().max(end), 0);
            model[at as usize..end].fill(salt);
        }
        Step::Truncate(size) => model.resize(size as usize, 0),
        Step::Punch(at, len) => {
            let end = model.len().min((at + len) as usize);
            if let Some(hole) = model.get_mut(at as usize..end) {
                hole.fill(0);
            }
        }
        Step::Allocate(at, len) => model.resize(model.len().max((at + len) as usize), 0),
    }
}

/// The kernel and StetFS take turns with the same files.
#[test]
fn taking_turns_with_the_kernel() {
    for (block, cluster, features) in [
        (1024u32, 4096u32, "bigalloc"),
        (4096, 65536, "bigalloc"),
        (1024, 16384, "bigalloc,^has_journal"),
    ] {
        let mut mkfs = Mkfs::blocks(block).feature(features);
        mkfs.args.extend(["-C".into(), cluster.to_string()]);
        let image = Image::make(64 << 20, &mkfs).unwrap();
        let mut rng = fastrand::Rng::with_seed(u64::from(cluster));
        let mut models = vec![Vec::new(); 4];
        let mut salt = 0u8;
        for turn in 0..8 {
            let ours = turn % 2 == 0;
            let what = format!("clusters of {cluster}, turn {turn}");
            let mem = Arc::new(MemDevice::load(image.path()).unwrap());
            let steps: Vec<(usize, Step, u8)> = (0..40)
                .map(|_| {
                    salt = salt % 250 + 1;
                    (rng.usize(..4), step(&mut rng), salt)
                })
                .collect();
            for (i, step, salt) in &steps {
                in_model(&mut models[*i], step, *salt);
            }
            if ours {
                let fs = Fs::open(mem.clone(), FsOptions::default()).unwrap();
                let files: Vec<OpenRef> = (0..4)
                    .map(|i| {
                        let name = format!("f{i}");
                        let ino = match fs.lookup(ROOT_INO, name.as_bytes()) {
                            Ok(attr) => attr.ino,
                            Err(_) => {
                                let mode = libc::S_IFREG | 0o644;
                                let made =
                                    fs.mknod(&Ctx::ROOT, ROOT_INO, name.as_bytes(), mode, 0, 0);
                                made.unwrap().ino
                            }
                        };
                        let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
                        fs.forget(ino, 1);
                        file
                    })
                    .collect();
                for (i, step, salt) in &steps {
                    let f = &files[*i];
                    match *step {
                        Step::Write(at, len) => {
                            let n = fs.write(&Ctx::ROOT, f, at, &vec![*salt; len], false);
                            assert_eq!(n.unwrap(), len);
                        }
                        Step::Truncate(size) => {
                            let set = SetAttr {
                                size: Some(size),
                                ..SetAttr::default()
                            };
                            fs.setattr(&Ctx::ROOT, f.ino(), &set).unwrap();
                        }
                        Step::Punch(at, len) => fs
                            .fallocate(&Ctx::ROOT, f, FallocateMode::PunchHole, at, len)
                            .unwrap(),
                        Step::Allocate(at, len) => {
                            let mode = FallocateMode::Allocate { keep_size: false };
                            fs.fallocate(&Ctx::ROOT, f, mode, at, len).unwrap();
                        }
                    }
                }
                for (f, model) in files.iter().zip(&models) {
                    let mut have = vec![0xEE; model.len() + 1];
                    let n = fs.read(f, 0, &mut have).unwrap();
                    assert!(have[..n] == **model, "{what}: as we left it");
                }
                drop(files);
                fs.unmount().unwrap();
                drop(fs);
                mem.save(image.path()).unwrap();
            }
            let mount = kernel(&image);
            for (i, model) in models.iter_mut().enumerate() {
                let path = mount.path().join(format!("f{i}"));
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&path)
                    .unwrap();
                if !ours {
                    for (_, step, salt) in steps.iter().filter(|(which, ..)| *which == i) {
                        use rustix::fs::FallocateFlags as Flags;
                        let punch = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
                        match *step {
                            Step::Write(at, len) => {
                                file.write_all_at(&vec![*salt; len], at).unwrap();
                            }
                            Step::Truncate(size) => file.set_len(size).unwrap(),
                            Step::Punch(at, len) => {
                                rustix::fs::fallocate(&file, punch, at, len).unwrap();
                            }
                            Step::Allocate(at, len) => {
                                rustix::fs::fallocate(&file, Flags::empty(), at, len).unwrap();
                            }
                        }
                    }
                }
                assert!(std::fs::read(&path).unwrap() == *model, "{what}: f{i}");
            }
            mount.umount().unwrap();
            image
                .e2fsck_fn()
                .unwrap_or_else(|e| panic!("{what}: {e:#}"));
        }
    }
}

/// A file whose only extent is not aligned to clusters, or lies in the file system's own blocks.
/// (cluster.C1)
#[test]
fn damaged_places_are_errors() {
    let mut mkfs = Mkfs::blocks(1024).feature("bigalloc,^resize_inode,^metadata_csum");
    mkfs.args.extend(["-C".into(), "8192".into()]);
    for elsewhere in [true, false] {
        let image = Image::make(16 << 20, &mkfs).unwrap();
        let mount = kernel(&image);
        std::fs::write(mount.path().join("file"), vec![7; 3000]).unwrap();
        mount.umount().unwrap();
        let start: u64 = image
            .debugfs("bmap file 0")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        // Word 5 of the inode's map: the start of its first extent.
        let table = image.debugfs("imap <2>").unwrap();
        let table = table.split("at block ").nth(1).unwrap();
        let table: u64 = table.split(',').next().unwrap().parse().unwrap();
        let to = if elsewhere {
            start + 1
        } else {
            table - table % 8
        };
        image
            .debugfs_write(&format!("set_inode_field file block[5] {to}"))
            .unwrap();
        let mem = Arc::new(MemDevice::load(image.path()).unwrap());
        let fs = Fs::open(mem.clone(), FsOptions::default()).unwrap();
        let before = fs.statfs().bfree;
        let ino = fs.lookup(ROOT_INO, b"file").unwrap().ino;
        let file = fs.open_inode(&Ctx::ROOT, ino, libc::O_RDWR).unwrap();
        let more = fs.write(&Ctx::ROOT, &file, 4096, b"more", false);
        assert_eq!(more.unwrap_err().errno(), libc::EUCLEAN, "at {to}");
        let set = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        assert!(fs.setattr(&Ctx::ROOT, ino, &set).is_err());
        assert_eq!(fs.statfs().bfree, before);
        drop(file);
        let _ = fs.unmount();
    }
}
