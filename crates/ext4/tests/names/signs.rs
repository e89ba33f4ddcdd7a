//! Names with bytes above 127 in hashed directories: the kernel and StetFS agree on whether these
//! bytes are signed, whatever the superblock says of it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use stetfs_ext4::{Fs, FsOptions, ROOT_INO};
use stetfs_ondisk::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperFlags, Superblock};
use stetfs_testkit::{Image, Mkfs};

use crate::names::support::{Vol, device, kernel, small};

/// The hash functions, by the names that e2fsprogs has for them.
const HASHES: [&str; 3] = ["legacy", "half_md4", "tea"];
/// Offset of `s_def_hash_version` in the superblock.
const DEFAULT_HASH: u64 = 0xFC;
/// Offset of `hash_version` in an index root.
const ROOT_HASH: u64 = 0x1C;

fn name(i: usize) -> String {
    format!("é{i:04}-{}-ÿ", "ñ日本".repeat(i % 4))
}

fn volume(mkfs: &Mkfs, hash: &str, flags: u32) -> Image {
    let image = Image::make(32 << 20, mkfs).unwrap();
    let set = |field: &str| image.debugfs_write(&format!("set_super_value {field}"));
    set(&format!("def_hash_version {hash}")).unwrap();
    set(&format!("flags {flags}")).unwrap();
    image
}

/// Writes one byte of an image, whose volume has no checksums.
fn poke(image: &Image, offset: u64, byte: u8) {
    let file = fs::OpenOptions::new().write(true).open(image.path());
    file.unwrap().write_all_at(&[byte], offset).unwrap();
}

/// A volume without checksums with any byte as its default hash.
fn with_default_hash(byte: u8, flags: u32) -> Image {
    let image = volume(&small().feature("^metadata_csum"), "half_md4", flags);
    poke(&image, SUPERBLOCK_OFFSET + DEFAULT_HASH, byte);
    image
}

fn flags(image: &Image) -> u32 {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    let file = fs::File::open(image.path()).unwrap();
    file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    Superblock::decode(&bytes).unwrap().flags().bits()
}

fn fill(vol: &Vol, dir: &str, count: usize) {
    let dir = vol.mkdir(ROOT_INO, dir.as_bytes()).unwrap();
    for i in 0..count {
        vol.file(dir, name(i).as_bytes()).unwrap();
    }
}

/// Asserts that each name is found, and listed.
#[track_caller]
fn finds(vol: &Vol, dir: &str, count: usize) {
    let ino = vol.ino(dir);
    let found = |i: &usize| vol.lookup(ino, name(*i).as_bytes()).is_ok();
    assert_eq!((0..count).filter(found).count(), count);
    assert_eq!(vol.names(ino).len(), count);
}

/// Asserts that the kernel finds each name, and e2fsck no fault.
#[track_caller]
fn kernel_finds(image: &Image, dir: &str, count: usize) {
    let mount = kernel(image);
    let dir = mount.path().join(dir);
    let found = |i: &usize| dir.join(name(*i)).exists();
    let found = (0..count).filter(found).count();
    mount.umount().unwrap();
    image.e2fsck_fn().unwrap();
    assert_eq!(found, count, "flags {}", flags(image));
}

#[test]
fn the_kernel_finds_names_by_stetfs() {
    for hash in HASHES {
        for (before, after) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let vol = Vol::on(volume(&small(), hash, before));
            fill(&vol, "dir", 2000);
            finds(&vol, "dir", 2000);
            let image = vol.close();
            kernel_finds(&image, "dir", 2000);
            assert_eq!(flags(&image), after, "{hash}, flags {before}");
        }
    }
}

#[test]
fn stetfs_finds_names_by_the_kernel() {
    for hash in HASHES {
        for before in 0..4 {
            let image = volume(&small(), hash, before);
            let mount = kernel(&image);
            fs::create_dir(mount.path().join("dir")).unwrap();
            for i in 0..500 {
                fs::write(mount.path().join("dir").join(name(i)), b"").unwrap();
            }
            mount.umount().unwrap();
            let said = flags(&image);
            let vol = Vol::on(image);
            finds(&vol, "dir", 500);
            for i in 500..1000 {
                vol.file(vol.ino("dir"), name(i).as_bytes()).unwrap();
            }
            let image = vol.close();
            kernel_finds(&image, "dir", 1000);
            assert_eq!(flags(&image), said, "{hash}, flags {before}");
        }
    }
}

/// Names of builds that set no flag, and those of e2fsprogs, are signed.
#[test]
fn without_a_flag_bytes_are_signed_and_the_first_writer_says_so() {
    let vol = Vol::on(volume(&small(), "half_md4", 1));
    fill(&vol, "dir", 500);
    let image = vol.close();
    image.debugfs_write("set_super_value flags 4").unwrap();
    let opts = FsOptions {
        read_only: true,
        ..FsOptions::default()
    };
    let fs = Fs::open(Arc::new(device(image.path())), opts).unwrap();
    let vol = Vol { image, fs };
    finds(&vol, "dir", 500);
    let image = vol.close();
    assert_eq!(flags(&image), 4);
    let vol = Vol::on(image);
    finds(&vol, "dir", 500);
    // The flag is on the device before anything changes.
    assert_eq!(flags(&vol.image), 4 | 1);
    let image = vol.close();
    assert_eq!(flags(&image), 4 | SuperFlags::SIGNED_HASH.bits());
    kernel_finds(&image, "dir", 500);
}

#[test]
fn a_volume_without_indexes_gets_no_flag() {
    let vol = Vol::on(volume(&small().feature("^dir_index"), "half_md4", 0));
    fill(&vol, "dir", 100);
    let image = vol.close();
    assert_eq!(flags(&image), 0);
    kernel_finds(&image, "dir", 100);
}

/// Versions 3 to 5 are those of unsigned bytes in memory. On a volume the flags decide alone.
#[test]
fn unsigned_versions_as_the_default_follow_the_flags() {
    for byte in 3..6 {
        for (before, after) in [(0, 1), (1, 1), (2, 2)] {
            let vol = Vol::on(with_default_hash(byte, before));
            fill(&vol, "dir", 500);
            let vol = vol.reopen();
            finds(&vol, "dir", 500);
            let image = vol.close();
            assert_eq!(flags(&image), after);
            let htree = image.debugfs("htree dir").unwrap();
            let version = format!("Hash Version: {}", byte - 3);
            assert!(htree.contains(&version), "{htree}");
            kernel_finds(&image, "dir", 500);
        }
    }
}

/// An index root with an unsigned version is none of the kernel's, which searches such a directory
/// without its index. The root decides for StetFS.
#[test]
fn unsigned_versions_in_an_index_root_are_read() {
    let vol = Vol::on(volume(&small().feature("^metadata_csum"), "tea", 2));
    fill(&vol, "dir", 500);
    let image = vol.close();
    let block: u64 = image.debugfs("bmap dir 0").unwrap().trim().parse().unwrap();
    poke(&image, block * 1024 + ROOT_HASH, 5);
    image.debugfs_write("set_super_value flags 1").unwrap();
    let vol = Vol::on(image);
    finds(&vol, "dir", 500);
    vol.fs.unmount().unwrap();
}

#[test]
fn an_unknown_default_hash_is_refused() {
    for byte in [6, 7, 255] {
        let image = with_default_hash(byte, 1);
        for read_only in [false, true] {
            let opts = FsOptions {
                read_only,
                ..FsOptions::default()
            };
            let opened = Fs::open(Arc::new(device(image.path())), opts);
            let text = opened.map(drop).unwrap_err().to_string();
            let version = format!("directory hash version {byte}");
            assert!(text.contains(&version), "{text}");
        }
    }
}
