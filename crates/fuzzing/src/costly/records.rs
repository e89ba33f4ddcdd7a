//! Costly sync records of an existing file, in a StetFS log.

use std::path::Path;

use stetfs_ondisk::ext4::extent::{Extent, Index, MAX_LEN, NodeMut, update_block_checksum};
use stetfs_ondisk::stet::record::{FileRecord, Name, Node, Range, Run};

use super::logs::Forged;
use super::made::{BLOCK, Make, debugfs, make};
use super::raw::{FILE, Raw};

pub(super) const ALL: [(&str, Make); 8] = [
    ("runs of blocks that come and go", |path| {
        many(path, &[], nothing, |i| range((i % 2) * RUNS, LONG, FREE));
    }),
    ("runs over many small groups that come and go", |path| {
        many(path, &SMALL, nothing, |i| range((i % 2) * RUNS, LONG, FREE));
    }),
    ("runs over many small groups that wander", |path| {
        many(path, &SMALL, nothing, |i| {
            range(20, LONG, FREE + (i % 2) * (1 << 20))
        });
    }),
    ("runs over single blocks, again and again", |path| {
        many(path, &[], singles, |_| range(RUNS, MAX_LEN, FREE));
    }),
    (
        "single blocks that are written and unwritten in turn",
        |path| {
            many(path, &[], singles, |i| {
                let mut range = range(RUNS, LONG, FREE);
                let runs = range.runs.iter_mut();
                runs.for_each(|run| run.unwritten = i % 2 == 1);
                range
            });
        },
    ),
    ("files in each other's place", replaced),
    ("ranges over each other", |path| {
        one(path, &vec![range(RUNS, LONG, FREE); 1000]);
    }),
    ("a run of 2^31 blocks, often", |path| {
        many(path, &[], nothing, |i| {
            let mut range = range(1, LONG, FREE);
            range.count = (1 << 31) - 1;
            range.runs[0].len = range.count - i as u32;
            range
        });
    }),
];

/// Inode number of the file.
const FIRST: u32 = 12;
/// Runs in most records.
const RUNS: u64 = 50;
/// Blocks of a run, written or not.
const LONG: u32 = MAX_LEN - 8;
/// First of some free blocks.
const FREE: u64 = 70 << 15;
/// Number of records, of one block each.
const RECORDS: u64 = 2500;
/// Arguments for a file system with small groups.
const SMALL: [&str; 2] = ["-g", "1024"];

/// A range of `RUNS * len` blocks with `runs` runs of `len` blocks, one after the other; the rest
/// is a hole.
fn range(runs: u64, len: u32, start: u64) -> Range {
    let run = |i: u64| Run {
        lblk: i as u32 * len,
        len,
        start: start + i * u64::from(len),
        unwritten: false,
    };
    Range {
        first: 0,
        count: RUNS as u32 * len,
        runs: (0..runs).map(run).collect(),
    }
}

fn nothing(_: &Raw) {}

/// Gives the file single-block extents, as many as those runs have or as fit.
fn singles(raw: &Raw) {
    const LEAVES: u64 = 800;
    let seed = raw.seed(FIRST);
    let first = FREE - 10_000;
    let put = |nr: u64, depth: u16, count: u64, fill: &dyn Fn(&mut NodeMut<'_>, u64)| {
        let mut block = vec![0; BLOCK];
        let mut node = NodeMut::init(&mut block[..], depth).unwrap();
        (0..count).for_each(|i| fill(&mut node, i));
        update_block_checksum(seed, &mut block).unwrap();
        raw.put(nr, &block);
    };
    let per_leaf = 340;
    for leaf in 0..LEAVES {
        put(first + 3 + leaf, 0, per_leaf, &|node, i| {
            let nr = leaf * per_leaf + i;
            let extent = Extent {
                block: nr as u32,
                len: 1,
                start: FREE + nr,
                unwritten: false,
            };
            node.insert_extent(i as usize, &extent).unwrap();
        });
    }
    for middle in 0..LEAVES.div_ceil(per_leaf) {
        let leaves = per_leaf.min(LEAVES - middle * per_leaf);
        put(first + middle, 1, leaves, &|node, i| {
            let leaf = middle * per_leaf + i;
            let index = Index {
                block: (leaf * per_leaf) as u32,
                child: first + 3 + leaf,
            };
            node.insert_index(i as usize, &index).unwrap();
        });
    }
    raw.change(FIRST, |inode| {
        inode.set_size(LEAVES * per_leaf * BLOCK as u64);
        let mut root = NodeMut::init(inode.i_block_mut(), 2).unwrap();
        for middle in 0..LEAVES.div_ceil(per_leaf) {
            let index = Index {
                block: (middle * per_leaf * per_leaf) as u32,
                child: first + middle,
            };
            root.insert_index(middle as usize, &index).unwrap();
        }
    });
}

/// A volume with the file and with a log for its records; gives the log and the inode.
fn begin(path: &Path, args: &[&str], prepare: fn(&Raw)) -> (Forged, Vec<u8>) {
    // These features put all metadata but the log at the start.
    let packed = ["-O", "sparse_super2,^resize_inode", "-G", "4096"];
    make(path, 64, &[&packed, args].concat());
    debugfs(path, "write /dev/null file");
    let log = Forged::on(path, 64);
    let raw = Raw::open(path);
    raw.change(FIRST, |inode| inode.set_mode(FILE));
    let inode = raw.inode(FIRST).bytes().to_vec();
    prepare(&raw);
    (log, inode)
}

fn record(ino: u32, inode: &[u8], ranges: Vec<Range>) -> FileRecord {
    FileRecord {
        dirs: Vec::new(),
        file: Node {
            ino,
            inode: inode.to_vec(),
            name: None,
        },
        ranges,
        pages: Vec::new(),
    }
}

/// Makes a volume with `count` records. `next` makes each from the number of records before and the
/// file's inode.
fn write(
    path: &Path,
    args: &[&str],
    prepare: fn(&Raw),
    count: u64,
    next: impl Fn(u64, &[u8]) -> FileRecord,
) {
    let (mut log, inode) = begin(path, args, prepare);
    let mut at = log.lane_of_records();
    for i in 0..count {
        let body = next(i, &inode).encode();
        at = log.put(at, &log.record(i + 1, Vec::new(), body));
    }
}

/// Makes records with one range each. `next` makes each range from the number of records before.
fn many(path: &Path, args: &[&str], prepare: fn(&Raw), next: fn(u64) -> Range) {
    write(path, args, prepare, RECORDS, |i, inode| {
        record(FIRST, inode, vec![next(i)])
    });
}

/// Makes one record with these ranges.
fn one(path: &Path, ranges: &[Range]) {
    write(path, &[], nothing, 1, |_, inode| {
        record(FIRST, inode, ranges.to_vec())
    });
}

/// Makes records that each create a file in the place of another one.
fn replaced(path: &Path) {
    write(path, &[], nothing, RECORDS, |i, inode| {
        let ino = FIRST + 2 + (i % 900) as u32;
        let mut record = record(ino, inode, vec![range(RUNS, LONG, FREE)]);
        record.file.name = Some(Name {
            parent: 2,
            name: b"name".to_vec(),
            replaces: true,
        });
        record
    });
}
