//! Costly orphans, which are deleted or truncated when the volume is opened.

use std::path::Path;

use stetfs_ondisk::ext4::extent::{Extent, Index, NodeMut};
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::orphan_file;
use stetfs_ondisk::ext4::xattr::{self, Attr, Value};

use super::made::{BLOCK, Make, debugfs, make};
use super::raw::{FILE, Raw};
use super::trees::indirect;

pub(super) const ALL: [(&str, Make); 9] = [
    ("an orphan that follows itself", itself),
    ("an orphan file of itself", |path| file(path, 12)),
    ("an orphan file of the same inode", |path| file(path, 13)),
    ("an orphan file of a free inode", |path| file(path, 900)),
    ("an orphan of all blocks again and again", shared),
    ("orphans of the same blocks", |path| {
        many(path, |raw, ino| {
            if ino == FIRST {
                raw.in_use(FREE..FREE + 4);
                indirect(raw, ino, FREE);
            }
            let map = raw.inode(FIRST).i_block().to_vec();
            raw.change(ino, |inode| {
                inode.i_block_mut().copy_from_slice(&map);
                inode.set_size(1 << 30);
            });
        });
    }),
    ("orphans of the same extents", |path| {
        many(path, |raw, ino| {
            if ino == FIRST {
                raw.in_use(FREE..FREE + 341);
                extents(raw, FREE);
            }
            raw.change(ino, |inode| {
                inode.set_flags(InodeFlags::EXTENTS);
                let mut root = NodeMut::init(inode.i_block_mut(), 1).unwrap();
                let (block, child) = (0, FREE);
                root.insert_index(0, &Index { block, child }).unwrap();
            });
        });
    }),
    ("orphans of one block of attributes", |path| {
        many(path, |raw, ino| {
            if ino == FIRST {
                raw.in_use(FREE..FREE + 1);
                attributes(raw, FREE, 1 << 20);
            }
            raw.change(ino, |inode| inode.set_file_acl(FREE));
        });
    }),
    (
        "orphans of one block of attributes that is of one",
        |path| {
            many(path, |raw, ino| {
                if ino == FIRST {
                    raw.in_use(FREE..FREE + 1);
                    attributes(raw, FREE, 1);
                }
                raw.change(ino, |inode| inode.set_file_acl(FREE));
            });
        },
    ),
];

/// Inode number of the first of many orphans.
const FIRST: u32 = 12;
/// Number of orphans.
const MANY: u32 = 60_000;
/// A block that is free.
const FREE: u64 = 200_000;

/// A volume on which nearly all inodes are orphans; `fill` gives each something.
fn many(path: &Path, fill: fn(&Raw, u32)) {
    let features = ["-O", "^metadata_csum,^uninit_bg,^64bit"];
    make(
        path,
        4,
        &[&features[..], &["-I", "128", "-N", "61000"]].concat(),
    );
    let mut raw = Raw::open(path);
    for ino in FIRST..FIRST + MANY {
        raw.change(ino, |inode| {
            inode.set_mode(FILE);
            inode.set_blocks_512(16, false, BLOCK as u32).unwrap();
            // This links the next inode of the orphan list.
            inode.set_dtime(if ino + 1 < FIRST + MANY { ino + 1 } else { 0 });
        });
        fill(&raw, ino);
    }
    raw.inodes_in_use(FIRST..FIRST + MANY);
    raw.superblock(|sb| sb.last_orphan.set(FIRST));
}

/// Writes a full leaf of single blocks that follow it.
fn extents(raw: &Raw, nr: u64) {
    let mut block = vec![0; BLOCK];
    let mut node = NodeMut::init(&mut block[..], 0).unwrap();
    for i in 0..node.capacity() as u32 {
        let extent = Extent {
            block: 2 * i,
            len: 1,
            start: nr + 1 + u64::from(i),
            unwritten: false,
        };
        node.insert_extent(i as usize, &extent).unwrap();
    }
    raw.put(nr, &block);
}

/// Writes a block of attributes that `inodes` inodes share.
fn attributes(raw: &Raw, nr: u64, inodes: u32) {
    let attrs = [Attr {
        index: 1,
        name: b"name",
        value: Value::Bytes(b"value"),
    }];
    let mut block = vec![0; BLOCK];
    assert!(xattr::write_block(&mut block, &attrs, 1).unwrap());
    // This is more than may share one block.
    block[4..8].copy_from_slice(&inodes.to_le_bytes());
    raw.put(nr, &block);
}

/// A volume whose orphan list has no end.
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

/// An orphan file of 2 MiB that names one inode again and again.
fn file(path: &Path, ino: u32) {
    use stetfs_ondisk::ext4::features::RoCompat;
    let args = [
        "-O",
        "orphan_file,^metadata_csum",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1,orphan_file_size=512",
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

/// A file of 4 TiB whose indirect blocks all lead to the same block.
fn shared(path: &Path) {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg,^64bit"]);
    debugfs(path, "write /dev/null file");
    let mut raw = Raw::open(path);
    raw.in_use(FREE..FREE + 4);
    indirect(&raw, FIRST, FREE);
    raw.change(12, |inode| inode.set_links(0));
    raw.superblock(|sb| sb.last_orphan.set(12));
}
