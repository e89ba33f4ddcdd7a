//! Costly maps of files: trees whose nodes are named more than once.

use std::path::Path;

use stetfs_ondisk::ext4::extent::{Extent, Index, NodeMut, update_block_checksum};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::fast;
use super::made::{BLOCK, Make, debugfs, log_at, make};
use super::raw::{FILE, Raw};

pub(super) const ALL: [(&str, Make); 8] = [
    ("a file of 4 TiB of one block", |path| {
        shared(path, &[200_003]);
    }),
    ("a file of every other block of 4 TiB", |path| {
        shared(path, &[200_003, 0]);
    }),
    ("a file of 4 TiB of holes", |path| shared(path, &[0])),
    ("a node that is its own child", |path| node(path, 5, false)),
    ("holes of empty leaves that are the same", |path| {
        node(path, 2, true)
    }),
    ("a log of the same blocks again and again", |path| {
        log(path, extents);
    }),
    ("a log of single blocks", |path| {
        log(path, single);
    }),
    ("a log of 7 GiB", large_log),
];

/// Gives an inode a block map with three indirect blocks, whose entries are all equal: the whole
/// file is block `first + 3`.
pub(super) fn indirect(raw: &Raw, ino: u32, first: u64) {
    let all = |nr: u64| vec![nr as u32; BLOCK / 4];
    for (nr, to) in [
        (first, first + 3),
        (first + 1, first),
        (first + 2, first + 1),
    ] {
        raw.put(
            nr,
            &all(to)
                .into_iter()
                .flat_map(u32::to_le_bytes)
                .collect::<Vec<_>>(),
        );
    }
    raw.change(ino, |inode| {
        inode.set_flags(InodeFlags::empty());
        let mut map = vec![(first + 3) as u32; 12];
        map.extend([first, first + 1, first + 2].map(|nr| nr as u32));
        let bytes: Vec<u8> = map.into_iter().flat_map(u32::to_le_bytes).collect();
        inode.i_block_mut().copy_from_slice(&bytes);
        inode.set_size((12 + 1024 + (1 << 20) + (1 << 30)) << 12);
    });
}

/// A file whose indirect blocks repeat. The last-level block names `blocks` in turn.
fn shared(path: &Path, blocks: &[u32]) {
    make(path, 64, &["-O", "^metadata_csum,^uninit_bg,^64bit"]);
    debugfs(path, "write /dev/null file");
    let raw = Raw::open(path);
    raw.change(12, |inode| inode.set_mode(FILE));
    indirect(&raw, 12, 200_000);
    let leaf = blocks.iter().copied().cycle().take(BLOCK / 4);
    let bytes: Vec<u8> = leaf.flat_map(u32::to_le_bytes).collect();
    raw.put(200_000, &bytes);
    raw.change(12, |inode| {
        inode.i_block_mut()[..48].copy_from_slice(&bytes[..48])
    });
}

/// A file with an extent tree of this depth. With `distinct` only the nodes above the leaves are
/// distinct; otherwise all nodes are one.
fn node(path: &Path, depth: u16, distinct: bool) {
    make(path, 64, &[]);
    debugfs(path, "write /dev/null file");
    let raw = Raw::open(path);
    let seed = raw.seed(12);
    let put = |nr: u64, depth: u16, first: u32, step: u32, child: &dyn Fn(u32) -> u64| {
        let mut block = vec![0; BLOCK];
        let mut node = NodeMut::init(&mut block[..], depth).unwrap();
        if depth > 0 {
            for i in 0..node.capacity() as u32 {
                let index = Index {
                    block: first + i * step,
                    child: child(i),
                };
                node.insert_index(i as usize, &index).unwrap();
            }
        }
        update_block_checksum(seed, &mut block).unwrap();
        raw.put(nr, &block);
    };
    const TOP: u64 = 200_000;
    let below = 340u32;
    if distinct {
        put(TOP, 2, 0, below * 16, &|i| TOP + 1 + u64::from(i));
        for i in 0..below {
            put(TOP + 1 + u64::from(i), 1, i * below * 16, 16, &|_| {
                TOP + 1000
            });
        }
        put(TOP + 1000, 0, 0, 0, &|_| 0);
    } else {
        put(TOP, depth, 0, 1, &|_| TOP);
    }
    raw.change(12, |inode| {
        inode.set_mode(FILE);
        inode.set_size(1 << 40);
        let mut root =
            NodeMut::init(inode.i_block_mut(), depth + 1 - u16::from(!distinct)).unwrap();
        root.insert_index(
            0,
            &Index {
                block: 0,
                child: TOP,
            },
        )
        .unwrap();
    });
}

/// Number of blocks that the log's map names again and again.
const RUN: u16 = 2048;

/// Maps the journal to its superblock, and then to the run behind it again and again.
fn extents(raw: &Raw, log: u64) {
    let leaf = |nr: u64, from: u32| {
        let mut block = vec![0; BLOCK];
        let mut node = NodeMut::init(&mut block[..], 0).unwrap();
        for i in 0..node.capacity() as u32 {
            let extent = Extent {
                block: 1 + (from + i) * u32::from(RUN),
                len: u32::from(RUN),
                start: log + 1,
                unwritten: false,
            };
            node.insert_extent(i as usize, &extent).unwrap();
        }
        if from == 0 {
            let extent = Extent {
                block: 0,
                len: 1,
                start: log,
                unwritten: false,
            };
            node.remove(339..340);
            node.insert_extent(0, &extent).unwrap();
        }
        raw.put(nr, &block);
    };
    raw.change(8, |inode| {
        inode.set_size((1 + 339 * u64::from(RUN)) << 12);
        let mut root = NodeMut::init(inode.i_block_mut(), 1).unwrap();
        leaf(250_000, 0);
        let index = Index {
            block: 0,
            child: 250_000,
        };
        root.insert_index(0, &index).unwrap();
    });
}

/// A log as long as its map says, with nothing but fast commits; each block is one.
fn log(path: &Path, map: fn(&Raw, u64)) {
    let mut area = fast::begin(path, 256);
    for i in 0..180 {
        area.add(i * 2, 1, 300_000);
    }
    area.tail();
    fast::end(path, &area);
    let raw = Raw::open(path);
    let at = log_at(path);
    let mut sb = raw.block(at);
    for nr in 1..=u64::from(RUN) {
        raw.put(at + nr, &area.blocks[0]);
    }
    map(&raw, at);
    let blocks = raw.inode(8).size() >> 12;
    sb[16..20].copy_from_slice(&(blocks as u32).to_be_bytes());
    sb[84..88].copy_from_slice(&((blocks - 2048) as u32).to_be_bytes());
    raw.put(at, &sb);
}

/// Maps the journal to its superblock, and then to one block again and again.
fn single(raw: &Raw, log: u64) {
    indirect(raw, 8, 300_000);
    let block = raw.block(log + 1);
    raw.put(300_003, &block);
    raw.change(8, |inode| {
        inode.i_block_mut()[..4].copy_from_slice(&(log as u32).to_le_bytes())
    });
}

/// A log of about the largest size that mke2fs makes on such a volume.
fn large_log(path: &Path) {
    make(path, 7 << 10, &["-O", "^metadata_csum"]);
    let mut raw = Raw::open(path);
    let at = log_at(path);
    let mut sb = raw.block(at);
    sb[28..32].copy_from_slice(&1u32.to_be_bytes());
    raw.put(at, &sb);
    raw.superblock(|sb| sb.set_incompat(sb.incompat() | Incompat::RECOVER));
}
