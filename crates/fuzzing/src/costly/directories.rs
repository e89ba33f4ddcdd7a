//! Costly directories, whose blocks are named more than once.

use std::path::Path;

use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::made::{BLOCK, Make, debugfs, make};
use super::raw::{DIR, Raw};
use super::trees::indirect;

pub(super) const ALL: [(&str, Make); 6] = [
    ("an index to the same leaf again and again", |path| {
        index(path, false)
    }),
    ("an index that names itself", |path| index(path, true)),
    ("an index of 4 GiB to the same leaf", |path| {
        deep(path, true)
    }),
    ("an index of the same leaf for each hash", |path| {
        deep(path, false)
    }),
    ("a directory of the same block again and again", shared),
    ("a directory in itself", itself),
];

/// Inode number of the directory.
const INO: u32 = 12;
const FREE: u64 = 200_000;

fn layout(raw: &Raw) -> DirLayout {
    DirLayout {
        tail: false,
        filetype: true,
        max_inode: raw.layout.inodes_count,
    }
}

/// A volume with a directory that has no blocks yet.
fn directory(path: &Path) -> Raw {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg,^64bit"]);
    debugfs(path, "mkdir /dir");
    debugfs(path, "write /dev/null dir/file");
    let raw = Raw::open(path);
    raw.change(INO, |inode| inode.set_mode(DIR));
    raw
}

/// A block full of names of one inode.
fn names(raw: &Raw) -> Vec<u8> {
    let layout = layout(raw);
    let mut block = vec![0; BLOCK];
    dirent::init_empty(&mut block, &layout).unwrap();
    let mut i = 0;
    while dirent::insert(
        &mut block,
        &layout,
        format!("{i:x}").as_bytes(),
        13,
        FileType::Regular,
    )
    .unwrap()
    .is_some()
    {
        i += 1;
    }
    block
}

/// Writes index entries (hash and block) behind the count and the limit at `at`.
fn entries(block: &mut [u8], at: usize, entries: impl Iterator<Item = (u32, u32)>) {
    let limit = (BLOCK - at) / 8;
    let mut count = 0;
    for (i, (hash, child)) in entries.take(limit).enumerate() {
        let place = &mut block[at + 8 * i..][..8];
        place[..4].copy_from_slice(&hash.to_le_bytes());
        place[4..].copy_from_slice(&child.to_le_bytes());
        count += 1;
    }
    block[at..at + 2].copy_from_slice(&(limit as u16).to_le_bytes());
    block[at + 2..at + 4].copy_from_slice(&(count as u16).to_le_bytes());
}

/// A root with these entries, above `levels` levels.
fn root(raw: &Raw, levels: u8, all: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    dirent::init_dots(&mut block, &layout(raw), INO, 2).unwrap();
    // The bytes are the hash (half MD4), the length of this header, and the levels.
    block[24..32].copy_from_slice(&[0, 0, 0, 0, 1, 8, levels, 0]);
    entries(&mut block, 32, all);
    block
}

/// An index node with these entries.
fn node(all: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    // A single free directory entry covers the whole block.
    block[4..6].copy_from_slice(&(BLOCK as u16).to_le_bytes());
    entries(&mut block, 8, all);
    block
}

/// Sets the blocks of the directory; the last one repeats to the end. The directory has `size`
/// bytes.
fn put(raw: &Raw, blocks: &[Vec<u8>], size: u64) {
    indirect(raw, INO, FREE);
    for (nr, block) in (FREE + 10..).zip(blocks) {
        raw.put(nr, block);
    }
    raw.put(FREE + 3, blocks.last().unwrap());
    raw.change(INO, |inode| {
        for (at, nr) in (FREE + 10..).take(blocks.len()).enumerate() {
            inode.i_block_mut()[4 * at..][..4].copy_from_slice(&(nr as u32).to_le_bytes());
        }
        inode.set_flags(InodeFlags::INDEX);
        inode.set_size(size);
    });
}

/// Index entries whose hashes all say that the collision continues.
fn same(child: impl Fn(u32) -> u32) -> impl Iterator<Item = (u32, u32)> {
    (0..).map(move |i| (2 * i + 1, child(i)))
}

/// A root whose entries all lead to a node; that node's entries lead to itself, or to one leaf.
fn index(path: &Path, itself: bool) {
    let raw = directory(path);
    let blocks = [
        root(&raw, 1, same(|_| 1)),
        node(same(move |_| if itself { 1 } else { 2 })),
        names(&raw),
    ];
    put(&raw, &blocks, 3 << 12);
}

/// An index with one node, in a directory of 4 GiB; all leaves are the same block.
fn deep(path: &Path, collide: bool) {
    let raw = directory(path);
    let of = |step: u32, first: u32| move |i: u32| (i * step + u32::from(collide), first + i);
    let blocks = [
        root(&raw, 1, (0..500).map(of(1 << 20, 1))),
        node((0..500).map(of(if collide { 0 } else { 2 }, 1000))),
        names(&raw),
    ];
    // The node exists once for all entries of the root: blocks 1 to 500 are the same.
    put(&raw, &blocks[..2], 4 << 30);
    let leaf = FREE + 20;
    raw.put(leaf, &blocks[2]);
    // Blocks from 1000 on are mapped by the second part of the indirect block.
    let mut map = raw.block(FREE);
    for at in 900..1024 {
        map[4 * at..][..4].copy_from_slice(&(leaf as u32).to_le_bytes());
    }
    raw.put(FREE, &map);
    let far: Vec<u8> = std::iter::repeat_n(leaf as u32, BLOCK / 4)
        .flat_map(u32::to_le_bytes)
        .collect();
    raw.put(FREE + 4, &far);
    let double: Vec<u8> = std::iter::repeat_n((FREE + 4) as u32, BLOCK / 4)
        .flat_map(u32::to_le_bytes)
        .collect();
    raw.put(FREE + 1, &double);
}

/// A directory of 4 TiB without an index: one block repeats.
fn shared(path: &Path) {
    let raw = directory(path);
    let first = {
        let mut block = vec![0; BLOCK];
        dirent::init_dots(&mut block, &layout(&raw), INO, 2).unwrap();
        block
    };
    put(
        &raw,
        &[first, names(&raw)],
        (12 + 1024 + (1 << 20) + (1 << 29)) << 12,
    );
    raw.change(INO, |inode| inode.set_flags(InodeFlags::empty()));
}

/// A directory with a name for itself, and a name for the root.
fn itself(path: &Path) {
    make(path, 64, &[]);
    debugfs(path, "mkdir /dir");
    for name in ["dir/dir", "dir/other"] {
        debugfs(path, &format!("ln <12> {name}"));
    }
    debugfs(path, "ln <2> dir/root");
}
