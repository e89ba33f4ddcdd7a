//! Tests of FIBMAP, and of swapping to a file.
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::{kernel, stetfs_with};
use rustix::fs::FallocateFlags;
use stetfs_testkit::{Attach, Image, Mkfs, Mounted, cmd, sys};

/// The unit of block numbers of files (FIGETBSZ), bytes: a block, or the value that Linux gives a
/// FUSE server.
fn unit(dir: &Path) -> u64 {
    let mut bytes = [0; 4];
    sys::file_ioctl(File::open(dir).unwrap().as_fd(), 2, &mut bytes).unwrap();
    u32::from_ne_bytes(bytes).into()
}

const NAMES: [&str; 5] = ["whole", "holes", "tiny", "unwritten", "empty"];

fn fill(dir: &Path) {
    let file = |name: &str| File::create_new(dir.join(name)).unwrap();
    file("whole").write_all_at(&pattern(1 << 20), 0).unwrap();
    let holes = file("holes");
    for at in [0, 64 << 10, 1 << 20, 5 << 20, (5 << 20) + 24576] {
        holes.write_all_at(&pattern(8192), at).unwrap();
    }
    file("tiny").write_all_at(b"fits into an inode", 0).unwrap();
    let unwritten = file("unwritten");
    // Files with block maps have no unwritten extents.
    let _ = rustix::fs::fallocate(&unwritten, FallocateFlags::empty(), 0, 1 << 20);
    unwritten
        .write_all_at(&pattern(16 << 10), 64 << 10)
        .unwrap();
    file("empty");
}

/// Content in which no two blocks are equal.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 512 + i % 251 + 1) as u8).collect()
}

/// The block numbers of a file.
fn places(file: &File, block: u64) -> Vec<u32> {
    let blocks = file.metadata().unwrap().len().div_ceil(block) as u32;
    let place = |i| sys::fibmap(file.as_fd(), i).unwrap();
    (0..blocks).map(place).collect()
}

/// Converts numbers of blocks to numbers of larger units; 0 for a unit that is not contiguous and
/// aligned.
fn in_units(places: &[u32], parts: usize) -> Vec<u32> {
    let place = |part: &[u32]| {
        let row = part.iter().zip(part[0]..).all(|(b, next)| *b == next);
        let whole = row && part.len() == parts && part[0].is_multiple_of(parts as u32);
        if whole { part[0] / parts as u32 } else { 0 }
    };
    places.chunks(parts).map(place).collect()
}

#[test]
fn files_lie_where_the_kernel_finds_them_with_what_was_written() {
    let plain = || Mkfs::blocks(4096);
    let volumes = [
        ("extents", plain(), "", 4096),
        ("block maps", plain().feature("^extent,^64bit"), "", 4096),
        ("clusters", plain().feature("bigalloc"), "", 4096),
        ("inline", plain().feature("inline_data"), "", 4096),
        ("small blocks", Mkfs::blocks(1024), "", 1024),
        ("data in the journal", plain(), "journal=data", 4096),
        ("LDJ", plain(), "journal=ldj", 4096),
        ("write-back", plain(), "writeback_cache", 4096),
    ];
    for (what, mkfs, options, block) in volumes {
        let image = Image::make(64 << 20, &mkfs).unwrap();
        let mounted = stetfs_with(options).mount(image.path()).unwrap();
        let dir = mounted.path();
        fill(dir);
        if options == "writeback_cache" {
            // FIBMAP does not write back Linux's cache.
            rustix::fs::syncfs(File::open(dir).unwrap()).unwrap();
        }
        let unit = unit(dir);
        let told = NAMES.map(|name| {
            let told = places(&File::open(dir.join(name)).unwrap(), unit);
            let bytes = std::fs::read(dir.join(name)).unwrap();
            let below = File::open(image.path()).unwrap();
            for (part, place) in bytes.chunks(unit as usize).zip(&told) {
                let mut home = vec![0; part.len()];
                let at = u64::from(*place) * unit;
                below.read_exact_at(&mut home, at).unwrap();
                assert!(*place == 0 || home == part, "{what}: {name} is not home");
            }
            told
        });
        mounted.umount().unwrap();
        // Larger units may all be misaligned.
        assert!(
            unit > block || told[0].iter().all(|place| *place != 0),
            "{what}"
        );
        let mounted = kernel().mount(image.path()).unwrap();
        for (name, told) in NAMES.iter().zip(told) {
            let file = File::open(mounted.path().join(name)).unwrap();
            let found = in_units(&places(&file, block), (unit / block) as usize);
            assert_eq!(told, found, "{what}: {name}");
        }
        mounted.umount().unwrap();
    }
}

/// A file used as swap, until this is dropped.
struct Swap<'a>(&'a Path);

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.0).status();
    }
}

impl Swap<'_> {
    fn on(path: &Path) -> Swap<'_> {
        cmd::run(Command::new("swapon").args(["-p", "32767"]).arg(path)).unwrap();
        Swap(path)
    }

    /// KiB in use.
    fn used(&self) -> u64 {
        let all = std::fs::read_to_string("/proc/swaps").unwrap();
        let name = self.0.to_str().unwrap();
        let line = all.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    }
}

fn swap_file(mounted: &Mounted) -> std::path::PathBuf {
    let path = mounted.path().join("swap");
    let file = File::create_new(&path).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
        .unwrap();
    file.write_all_at(&vec![0; 24 << 20], 0).unwrap();
    drop(file);
    cmd::run(Command::new("mkswap").arg("-q").arg(&path)).unwrap();
    path
}

#[test]
fn a_file_can_be_swapped_to_while_others_are_written() {
    let mount = |options, attach| stetfs_with(options).attached(attach);
    let direct = Attach::Loop { direct_io: true };
    for mounter in [
        mount("", Attach::File),
        mount("writeback_cache", Attach::File),
        mount("journal=data", direct),
    ] {
        let image = Image::make(96 << 20, &Mkfs::blocks(4096)).unwrap();
        let mounted = mounter.mount(image.path()).unwrap();
        let path = swap_file(&mounted);
        let swap = Swap::on(&path);
        let mut memory = pattern(8 << 20);
        sys::page_out(&mut memory).unwrap();
        assert!(swap.used() > 0, "nothing was swapped out");
        // The blocks must stay: the file can be neither changed nor removed.
        let writer = File::options().write(true).open(&path);
        let refused = writer.and_then(|f| f.write_all_at(&[1; 4096], 8192));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
        let gone = std::fs::remove_file(&path).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::EPERM));
        for i in 0..8 {
            let other = mounted.path().join(format!("other {i}"));
            std::fs::write(&other, vec![i; 1 << 20]).unwrap();
            File::open(&other).unwrap().sync_all().unwrap();
        }
        assert!(memory == pattern(8 << 20), "{}", mounter.name());
        drop(swap);
        for i in 0..8 {
            let other = mounted.path().join(format!("other {i}"));
            assert!(std::fs::read(other).unwrap() == vec![i; 1 << 20]);
        }
        std::fs::remove_file(&path).unwrap();
        mounted.umount().unwrap();
        image.e2fsck_fn().unwrap();
    }
}

#[test]
fn a_file_with_holes_cannot_be_swapped_to() {
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    let mounted = stetfs_with("").mount(image.path()).unwrap();
    let path = swap_file(&mounted);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let file = File::options().write(true).open(&path).unwrap();
    rustix::fs::fallocate(&file, flags, 1 << 20, 4096).unwrap();
    drop(file);
    let said = Command::new("swapon").arg(&path).output().unwrap();
    assert!(!said.status.success());
    std::fs::remove_file(&path).unwrap();
    mounted.umount().unwrap();
}
