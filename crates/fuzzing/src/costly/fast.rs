//! Costly fast commits of an existing file.

use std::path::Path;

use stetfs_ondisk::ext4::checksum::ext4_crc32c;

use super::made::{BLOCK, BLOCKS, Make, debugfs, log_at, make};
use super::raw::{FILE, Raw};

pub(super) const ALL: [(&str, Make); 9] = [
    ("a run of blocks that comes and goes", |path| {
        fill(path, |area, i| {
            if i % 2 == 0 {
                area.add(0, RUN, GROUP + 1000);
            } else {
                area.del(0, u32::from(RUN));
            }
        });
    }),
    ("a comb, and runs over it that come and go", |path| {
        fill(path, |area, i| match i {
            // The later runs give these blocks a second owner, and then take one owner away.
            0..10_000 => area.add((1 << 20) + 2 * i as u32, 1, GROUP + 1000 + 2 * i),
            _ if i % 2 == 0 => area.add(0, RUN, GROUP + 1000),
            _ => area.del(0, u32::from(RUN)),
        });
    }),
    ("runs over many small groups", |path| {
        let small = [
            "-O",
            "^metadata_csum,uninit_bg,^64bit,fast_commit,flex_bg",
            "-g",
            "1024",
        ];
        let mut area = begin_with(path, AREA, &[&small[..], &["-G", "4096"]].concat());
        let mut i = 0;
        while (area.blocks.len() as u64) < AREA - 3 {
            area.add(0, RUN, GROUP + GROUP * (i % 2));
            i += 1;
        }
        area.tail();
        end(path, &area);
    }),
    ("a file of single blocks, from behind", |path| {
        fill(path, |area, i| {
            area.add(u32::MAX - 2 - 2 * i as u32, 1, 540_000 + 2 * (i % 130_000));
        });
    }),
    ("an inode again and again", |path| {
        fill(path, |area, _| area.inode(FIRST, &area.bytes.clone()));
    }),
    ("an inode that grows and shrinks", |path| {
        fill(path, |area, i| {
            let mut bytes = area.bytes.clone();
            // i_size.
            bytes[108] = (i % 2) as u8 * 255;
            area.inode(FIRST, &bytes);
        });
    }),
    ("a name that comes and goes", |path| {
        fill(path, |area, i| {
            area.name([LINK, UNLINK][(i % 2) as usize], FIRST, b"n");
        });
    }),
    ("names of one inode", |path| {
        fill(path, |area, i| {
            area.name(LINK, FIRST, format!("{i:x}").as_bytes());
        });
    }),
    ("new files of nothing", |path| {
        fill(path, |area, i| {
            let ino = FIRST + 1 + (i % 900) as u32;
            area.name(
                [CREATE, UNLINK][(i / 900 % 2) as usize],
                ino,
                format!("{ino}").as_bytes(),
            );
        });
    }),
];

/// Inode number of the file.
const FIRST: u32 = 12;
/// Blocks of the fast-commit area.
const AREA: u64 = 10 << 8;

/// Blocks of a run in a group that has nothing else.
const RUN: u16 = 31_000;
/// First block of that group.
const GROUP: u64 = 17 << 15;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Bytes of a tag with its length.
const TAG: usize = 4;

/// An area with one fast commit under construction; its tail is in the last block of the area.
pub(super) struct Area {
    pub(super) blocks: Vec<Vec<u8>>,
    crc: u32,
    tid: u32,
    /// The bytes of the file's inode.
    pub(super) bytes: Vec<u8>,
}

impl Area {
    fn new(tid: u32, bytes: Vec<u8>) -> Area {
        let mut area = Area {
            blocks: vec![Vec::new()],
            crc: 0,
            tid,
            bytes,
        };
        area.put(HEAD, &[0u32.to_le_bytes(), tid.to_le_bytes()].concat());
        area
    }

    fn put(&mut self, kind: u16, value: &[u8]) {
        let used = self.blocks.last().unwrap().len();
        // A pad must fit behind the tag.
        if used + 2 * TAG + value.len() > BLOCK {
            self.raw(PAD, &vec![0; BLOCK - used - TAG]);
            self.blocks.push(Vec::new());
        }
        self.raw(kind, value);
    }

    fn raw(&mut self, kind: u16, value: &[u8]) {
        let bytes = [
            &kind.to_le_bytes()[..],
            &(value.len() as u16).to_le_bytes(),
            value,
        ]
        .concat();
        self.crc = ext4_crc32c(self.crc, &bytes);
        self.blocks.last_mut().unwrap().extend(bytes);
    }

    /// Ends the fast commit.
    pub(super) fn tail(&mut self) {
        if BLOCK - self.blocks.last().unwrap().len() < 2 * TAG + 8 {
            let rest = BLOCK - self.blocks.last().unwrap().len();
            if rest >= TAG {
                self.raw(PAD, &vec![0; rest - TAG]);
            }
            self.blocks.push(Vec::new());
        }
        let block = self.blocks.last_mut().unwrap();
        let len = (BLOCK - block.len() - TAG) as u16;
        let bytes = [
            &TAIL.to_le_bytes()[..],
            &len.to_le_bytes(),
            &self.tid.to_le_bytes(),
        ]
        .concat();
        let sum = ext4_crc32c(self.crc, &bytes);
        block.extend(bytes);
        block.extend(sum.to_le_bytes());
        block.resize(BLOCK, 0);
        self.crc = 0;
    }

    pub(super) fn add(&mut self, block: u32, len: u16, start: u64) {
        assert!(start < BLOCKS, "{start}");
        let extent = [
            &FIRST.to_le_bytes()[..],
            &block.to_le_bytes(),
            &len.to_le_bytes(),
            &((start >> 32) as u16).to_le_bytes(),
            &(start as u32).to_le_bytes(),
        ];
        self.put(ADD_RANGE, &extent.concat());
    }

    fn del(&mut self, block: u32, len: u32) {
        let range = [FIRST, block, len].map(u32::to_le_bytes);
        self.put(DEL_RANGE, &range.concat());
    }

    fn inode(&mut self, ino: u32, bytes: &[u8]) {
        self.put(INODE, &[&ino.to_le_bytes()[..], bytes].concat());
    }

    fn name(&mut self, kind: u16, ino: u32, name: &[u8]) {
        let value = [&2u32.to_le_bytes()[..], &ino.to_le_bytes(), name].concat();
        self.put(kind, &value);
    }
}

/// A volume with a file, and an area full of changes that `next` writes; `next` gets the number of
/// changes before.
fn fill(path: &Path, next: fn(&mut Area, u64)) {
    let mut area = begin(path, AREA);
    let mut i = 0;
    while (area.blocks.len() as u64) < AREA - 3 {
        next(&mut area, i);
        i += 1;
    }
    area.tail();
    end(path, &area);
}

/// A volume with a file, whose journal has `blocks` blocks for fast commits.
pub(super) fn begin(path: &Path, blocks: u64) -> Area {
    begin_with(path, blocks, &["-O", "^metadata_csum,^64bit,fast_commit"])
}

fn begin_with(path: &Path, blocks: u64, args: &[&str]) -> Area {
    make(path, 64, args);
    debugfs(path, "write /dev/null file");
    let raw = Raw::open(path);
    raw.change(FIRST, |inode| inode.set_mode(FILE));
    let log = log_at(path);
    let mut sb = raw.block(log);
    // s_start is not 0, though there is no transaction. Then come the feature, and the number of
    // blocks.
    sb[28..32].copy_from_slice(&1u32.to_be_bytes());
    let tid = u32::from_be_bytes(sb[24..28].try_into().unwrap());
    let features = u32::from_be_bytes(sb[40..44].try_into().unwrap()) | 0x20;
    sb[40..44].copy_from_slice(&features.to_be_bytes());
    sb[84..88].copy_from_slice(&(blocks as u32).to_be_bytes());
    raw.put(log, &sb);
    Area::new(tid, raw.inode(FIRST).bytes().to_vec())
}

/// Writes the area to the end of the log.
pub(super) fn end(path: &Path, area: &Area) {
    use stetfs_ondisk::ext4::features::Incompat;
    let mut raw = Raw::open(path);
    let log = log_at(path);
    let sb = raw.block(log);
    let number = |at: usize| u64::from(u32::from_be_bytes(sb[at..at + 4].try_into().unwrap()));
    // The block after the ring is never used.
    let at = number(16) - number(84) + 1;
    let said = debugfs(path, &format!("bmap <8> {at}"));
    let first: u64 = said.trim().parse().unwrap();
    for (nr, block) in (first..).zip(&area.blocks) {
        raw.put(nr, block);
    }
    raw.superblock(|sb| sb.set_incompat(sb.incompat() | Incompat::RECOVER));
}
