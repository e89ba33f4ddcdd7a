//! Directories, attributes and ACLs against e2fsprogs and the kernel: the output of mke2fs and
//! e2fsck can be read, every checksum is valid, and damage is detected. e2fsck and debugfs accept
//! the output of this crate.
mod attributes;
mod directories;
mod volume;

use std::path::Path;

use stetfs_testkit::image::e2fsck;
use stetfs_testkit::{Image, Mkfs};

/// The volumes that every test runs on.
fn kinds() -> Vec<(&'static str, Mkfs)> {
    vec![
        ("default", Mkfs::new()),
        ("blocks of 1 KiB", Mkfs::blocks(1024)),
        ("blocks of 64 KiB", Mkfs::blocks(65536)),
        (
            "without checksums",
            Mkfs::blocks(1024).feature("^metadata_csum"),
        ),
        (
            "without file types",
            Mkfs::blocks(1024).feature("^filetype"),
        ),
        (
            "seed in the superblock",
            Mkfs::blocks(2048).feature("metadata_csum_seed"),
        ),
        (
            "TEA, unsigned",
            Mkfs::blocks(1024).extended("hash_seed=7d5a2f10-93be-4c86-a1d4-0e6f8b7c2935"),
        ),
        ("legacy", Mkfs::blocks(1024)),
        ("small inodes", Mkfs::blocks(1024).inode_size(128)),
    ]
}

/// `s_def_hash_version` and `s_flags` (1: signed, 2: unsigned) of a kind.
fn hash_of(kind: &str) -> (u8, u8) {
    match kind {
        "TEA, unsigned" => (2, 2),
        "legacy" => (0, 1),
        "without checksums" => (1, 2),
        _ => (1, 1),
    }
}

/// `mke2fs -d tree`, and with `indexed` `e2fsck -D` after it.
fn image_of(tree: &Path, kind: &str, mut mkfs: Mkfs, indexed: bool) -> Image {
    mkfs.args.extend([
        "-N".into(),
        "8192".into(),
        "-d".into(),
        tree.to_str().unwrap().into(),
    ]);
    // Larger blocks need a larger image to leave room for a journal.
    let mib = if mkfs.block_size == Some(65536) {
        96
    } else {
        32
    };
    let image = Image::make(mib << 20, &mkfs).unwrap();
    let (version, flags) = hash_of(kind);
    let version = ["legacy", "half_md4", "tea"][usize::from(version)];
    image
        .debugfs_write(&format!("set_super_value def_hash_version {version}"))
        .unwrap();
    image
        .debugfs_write(&format!("set_super_value flags {flags}"))
        .unwrap();
    if indexed {
        e2fsck(image.path(), &["-fyD"], 1).unwrap();
    }
    image.e2fsck_fn().unwrap();
    image
}

/// Flips one bit of `bytes` at a time, at positions spread over `range`, and checks that `fails`
/// detects it.
fn each_flip_shows(bytes: &[u8], range: std::ops::Range<usize>, fails: impl Fn(&[u8]) -> bool) {
    let mut bytes = bytes.to_vec();
    let step = (range.len() / 64).max(1);
    for at in range.step_by(step) {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        assert!(fails(&bytes), "a flipped bit at {at} does not show");
        bytes[at] ^= bit;
    }
}
