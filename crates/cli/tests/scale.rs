//! Tests of the limits of ext4 with blocks of 4 KiB on a real mount: the largest volume and file,
//! the most extents of a file and entries of a directory. The images are sparse, so that a small
//! disk holds them; the server's memory stays flat.
//!
//! `STETFS_LONG=1` has a million entries in a directory.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use crate::common::daemon::{Daemon, json, ok};
use crate::common::{kernel, number, stetfs};
use stetfs_testkit::{Image, Mkfs, Mounter};

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;

/// Resident memory of the server, KiB.
fn resident(mount: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The host's own ext4 has no larger files.
#[test]
fn sixteen_tebibytes_take_no_more_memory_than_a_small_volume() {
    const SIZE: u64 = 16 * TIB - (1 << 30);
    let mkfs = Mkfs::blocks(4096)
        .usage("largefile4")
        .extended("lazy_itable_init=1,nodiscard,packed_meta_blocks=1");
    let use_it = |image: Image| {
        let mount = Daemon::unmounted(image);
        let begin = Instant::now();
        mount.mount("cache=32M");
        let took = begin.elapsed();
        let opened = json(&["stat", mount.dir()])["device"]["bytes_read"].as_u64();
        for d in 0..100 {
            let dir = mount.file(&format!("d{d}"));
            std::fs::create_dir(&dir).unwrap();
            for f in 0..5 {
                std::fs::write(dir.join(format!("{f}")), vec![d as u8; 20_000]).unwrap();
            }
        }
        File::open(&mount.dir).unwrap().sync_all().unwrap();
        let resident = resident(&mount);
        let stat = json(&["stat", mount.dir()]);
        let read = stat["device"]["bytes_read"].as_u64().unwrap() - opened.unwrap();
        // Each of 100 directories has a group of its own, with two bitmaps; there are 131,072
        // groups.
        assert!(read < 4 << 20, "{read} bytes were read for 500 files");
        let searched = stat["space"]["groups_searched"].as_u64().unwrap();
        assert!(searched < 5 * 700, "{searched} looks into groups");
        ok(&["umount", mount.dir()]);
        mount.image.e2fsck_fn().unwrap();
        assert_eq!(json(&["info", mount.image()])["state"], "clean");
        (resident, took, opened.unwrap())
    };
    let (small, ..) = use_it(Image::make(1 << 30, &Mkfs::blocks(4096)).unwrap());
    let (large, took, opened) = use_it(Image::make(SIZE, &mkfs).unwrap());
    println!(
        "{small} KiB with 1 GiB, {large} KiB with 16 TiB, opened in {took:?}: {opened} bytes read"
    );
    // The whole command takes about 0.2 s. It reads no more than the descriptors (8 MiB).
    assert!(opened < 12 << 20, "{opened} bytes were read");
    // Each of the 131,072 groups has a descriptor of 64 bytes, and its counts beside it.
    assert!(large < small + 48 * KIB, "{small} KiB, {large} KiB");
}

/// Both do the same work, each reads the other's result, and removes it at the end.
fn both(
    image: impl Fn() -> Image,
    write: impl Fn(&Path),
    read: impl Fn(&Path),
    end: impl Fn(&Path),
) {
    let run = |mounter: &Mounter, image: &Image, with: &dyn Fn(&Path)| {
        let mounted = mounter.mount(image.path()).unwrap();
        with(mounted.path());
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    };
    for (one, other) in [(stetfs(), kernel()), (kernel(), stetfs())] {
        let image = image();
        run(&one, &image, &|dir| {
            write(dir);
            read(dir);
        });
        run(&other, &image, &read);
        run(&one, &image, &read);
        run(&other, &image, &end);
    }
}

#[test]
fn a_sparse_file_has_sixteen_tebibytes_at_most() {
    // Block numbers have 32 bits, and the highest is not valid.
    const LARGEST: u64 = 16 * TIB - 4096;
    let places = [0, 4096 * 77, TIB, 8 * TIB + 12_288, LARGEST - 4096];
    both(
        || Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap(),
        |dir| {
            let file = File::create(dir.join("f")).unwrap();
            for at in places {
                file.write_all_at(&at.to_le_bytes(), at).unwrap();
            }
            file.set_len(LARGEST).unwrap();
            // The kernel counts blocks when it allocates them.
            file.sync_all().unwrap();
            let errno = |e: std::io::Result<()>| e.unwrap_err().raw_os_error();
            assert_eq!(errno(file.set_len(LARGEST + 1)), Some(libc::EFBIG));
            assert_eq!(errno(file.write_all_at(b"x", LARGEST)), Some(libc::EFBIG));
        },
        |dir| {
            use rustix::fs::SeekFrom::{Data, Hole};
            let file = File::open(dir.join("f")).unwrap();
            let meta = file.metadata().unwrap();
            assert_eq!((meta.len(), meta.blocks()), (LARGEST, 5 * 8 + 8));
            let mut hole = 0;
            for at in places {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, at).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), at);
                assert_eq!(rustix::fs::seek(&file, Data(hole)).unwrap(), at);
                hole = rustix::fs::seek(&file, Hole(at)).unwrap();
                assert_eq!(hole, at + 4096);
            }
        },
        |dir| std::fs::remove_file(dir.join("f")).unwrap(),
    );
}

#[test]
fn a_file_has_a_hundred_thousand_extents() {
    const EXTENTS: u64 = 100_000;
    both(
        || Image::make(600 << 20, &Mkfs::blocks(4096)).unwrap(),
        |dir| {
            let file = File::create(dir.join("comb")).unwrap();
            for i in 0..EXTENTS {
                // In an order that splits nodes at both ends and in the middle.
                let i = i * 7919 % EXTENTS;
                file.write_all_at(&i.to_le_bytes(), i * 8192).unwrap();
            }
            file.sync_all().unwrap();
        },
        |dir| {
            let file = File::open(dir.join("comb")).unwrap();
            // A block of the tree holds 340 extents.
            let blocks = file.metadata().unwrap().blocks() / 8;
            assert!(
                (EXTENTS + EXTENTS / 340..EXTENTS + EXTENTS / 50).contains(&blocks),
                "{blocks}"
            );
            for i in (0..EXTENTS).step_by(37) {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, i * 8192).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), i);
                file.read_exact_at(&mut bytes, i * 8192 + 4096).ok();
                assert!(i == EXTENTS - 1 || bytes == [0; 8]);
            }
        },
        |dir| {
            let file = File::options()
                .read(true)
                .write(true)
                .open(dir.join("comb"));
            let file = file.unwrap();
            file.set_len(EXTENTS / 3 * 8192).unwrap();
            let blocks = file.metadata().unwrap().blocks() / 8;
            assert!(blocks.abs_diff(EXTENTS / 3) < EXTENTS / 100, "{blocks}");
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, (EXTENTS / 3 - 1) * 8192)
                .unwrap();
            assert_eq!(u64::from_le_bytes(bytes), EXTENTS / 3 - 1);
            file.set_len(0).unwrap();
            assert_eq!(file.metadata().unwrap().blocks(), 0);
        },
    );
}

#[test]
fn a_directory_has_a_million_entries() {
    let entries = if number("STETFS_LONG", 0) > 0 {
        1_000_000
    } else {
        100_000
    };
    let name = |i: u64| format!("an entry with a longer name, number {i}");
    let mut mkfs = Mkfs::blocks(4096);
    mkfs.args = vec!["-N".into(), (entries + 1000).to_string()];
    both(
        || Image::make(2 << 30, &mkfs).unwrap(),
        |root| {
            let dir = root.join("dir");
            std::fs::create_dir(&dir).unwrap();
            for i in 0..entries {
                File::create(dir.join(name(i))).unwrap();
            }
            let mut one = File::create(dir.join("one more")).unwrap();
            one.write_all(b"and its text").unwrap();
            for i in (0..entries).step_by(10) {
                std::fs::remove_file(dir.join(name(i))).unwrap();
            }
        },
        |root| {
            let dir = root.join("dir");
            let mut seen = vec![false; entries as usize];
            let mut others = 0;
            for entry in std::fs::read_dir(&dir).unwrap() {
                let text = entry.unwrap().file_name().into_string().unwrap();
                match text.rsplit_once(' ').unwrap().1.parse::<usize>() {
                    Ok(i) => assert!(!std::mem::replace(&mut seen[i], true), "{i} twice"),
                    Err(_) => others += 1,
                }
            }
            assert_eq!(others, 1);
            for (i, seen) in seen.iter().enumerate() {
                assert_eq!(*seen, i % 10 != 0, "{i}");
            }
            for i in (0..entries).step_by(997) {
                assert_eq!(dir.join(name(i)).exists(), i % 10 != 0);
            }
            assert_eq!(
                std::fs::read(dir.join("one more")).unwrap(),
                b"and its text"
            );
        },
        |root| {
            let dir = root.join("dir");
            std::fs::remove_file(dir.join("one more")).unwrap();
            for i in (0..entries).filter(|i| i % 10 != 0) {
                std::fs::remove_file(dir.join(name(i))).unwrap();
            }
            std::fs::remove_dir(&dir).unwrap();
        },
    );
}
