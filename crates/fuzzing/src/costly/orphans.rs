//! Orphans: files to be deleted or truncated when the volume is opened.

use std::path::Path;

use stetfs_ondisk::ext4::orphan_file;

use super::raw::Raw;
use super::{Make, debugfs, make};

pub(super) const ALL: [(&str, Make); 4] = [
    ("an orphan that follows itself", itself),
    ("an orphan file of the same inode", |path| file(path, 12)),
    ("an orphan file of a free inode", |path| file(path, 900)),
    ("an orphan of all blocks again and again", shared),
];

/// The list of orphans has no end.
fn itself(path: &Path) {
    make(path, 64, &[]);
    for request in [
        "symlink /orphan target",
        "set_inode_field <12> dtime 12",
        "set_super_value last_orphan 12",
    ] {
        debugfs(path, request);
    }
}

/// An orphan file of 2 MiB that names one inode.
fn file(path: &Path, ino: u32) {
    use stetfs_ondisk::ext4::features::RoCompat;
    let args = [
        "-O",
        "orphan_file,^metadata_csum",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1,orphan_file_size=2097152",
    ];
    make(path, 64, &args);
    debugfs(path, "write /dev/null file");
    let mut raw = Raw::open(path);
    let mut holder = 0;
    raw.superblock(|sb| {
        sb.set_ro_compat(sb.ro_compat() | RoCompat::ORPHAN_PRESENT);
        holder = sb.orphan_file_inum.get();
    });
    let inode = raw.inode(holder);
    let blocks = inode.size() / 4096;
    assert_eq!(blocks, 512);
    for lblk in 0..blocks {
        let said = debugfs(path, &format!("bmap <{holder}> {lblk}"));
        let nr = said.trim().parse().unwrap();
        let mut block = raw.block(nr);
        for slot in 0..orphan_file::slots_per_block(block.len()) {
            orphan_file::set(&mut block, slot, ino).unwrap();
        }
        raw.put(nr, &block);
    }
}

/// A file with indirect blocks that all name the same ones: 4 TiB of one block.
fn shared(path: &Path) {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg,^64bit"]);
    debugfs(path, "write /dev/null file");
    let mut raw = Raw::open(path);
    raw.in_use(200_000..200_004);
    super::trees::indirect(&raw, 12, 200_000);
    raw.change(12, |inode| inode.set_links(0));
    raw.superblock(|sb| sb.last_orphan.set(12));
}
