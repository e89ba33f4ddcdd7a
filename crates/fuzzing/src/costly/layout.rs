//! Costly superblocks and group descriptors.

use std::fs::File;
use std::path::Path;

use stetfs_crash::volume::mke2fs;

use super::made::{Make, make, make_sized};
use super::raw::Raw;

pub(super) const ALL: [(&str, Make); 4] = [
    ("2^48 blocks on 16 MiB", |path| claims(path, 16 << 20)),
    ("2^48 blocks on 16 GiB", |path| claims(path, 16 << 30)),
    ("all groups' bitmaps and tables are the same", same),
    ("8 TiB of nothing", huge),
];

/// A superblock that claims 2^48 blocks.
fn claims(path: &Path, bytes: u64) {
    make_sized(path, bytes, 4, &["-O", "64bit"]);
    let mut raw = Raw::open(path);
    raw.superblock(|sb| {
        sb.blocks_count_lo.set(0);
        sb.blocks_count_hi.set(1 << 16);
    });
}

/// A volume whose group descriptors all equal the first one.
fn same(path: &Path) {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg"]);
    let raw = Raw::open(path);
    let first = raw.descriptor(0);
    for group in 1..raw.layout.group_count {
        raw.put_descriptor(group, &first);
    }
}

/// A volume half as large as the largest file in ext4.
fn huge(path: &Path) {
    File::create(path).unwrap().set_len(8 << 40).unwrap();
    let sparse = "lazy_itable_init=1,lazy_journal_init=1,packed_meta_blocks=1";
    let features = "64bit,^resize_inode,sparse_super2,flex_bg";
    let args = [
        "-b", "4096", "-N", "130000", "-J", "size=4", "-E", sparse, "-O", features,
    ];
    mke2fs(path, &[&args[..], &["-G", "4096"]].concat()).unwrap();
}
