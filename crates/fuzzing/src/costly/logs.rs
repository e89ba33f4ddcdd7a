//! Costly logs of both formats.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};

use stetfs::low::{Fs, MemDevice, preset};
use stetfs_crash::volume::options;
use stetfs_ondisk::stet::frame::{Chunk, Frame, Kind, Stored};
use stetfs_ondisk::stet::header::{COPY_BYTES, Lane, LogHeader, copy_at};
use stetfs_ondisk::stet::{checksum, frame};

use super::made::{BLOCK, BLOCKS, Make, log_at, make};

/// Number of images in the longest chunk.
const PER_CHUNK: usize = frame::MAX_CHUNK / BLOCK;

pub(super) const ALL: [(&str, Make); 13] = [
    ("a frame of 2 GiB", |path| {
        let homes = (0..128 * PER_CHUNK as u64).map(home).collect();
        packed(path, 64, &[homes]);
    }),
    ("a frame of 4 GiB of the same block", |path| {
        packed(path, 64, &[vec![home(0); 256 * PER_CHUNK]]);
    }),
    (
        "a frame of the same block as often as there is room",
        |path| {
            packed(path, 1024, &[vec![home(0); 60 * PER_CHUNK]]);
        },
    ),
    ("a frame beyond the volume", |path| {
        packed(path, 64, &[(0..8192).map(|i| BLOCKS + i).collect()]);
    }),
    ("frames of 4 GiB", |path| {
        packed(path, 64, &frames(300));
    }),
    ("frames of 1 GiB, across each other", |path| {
        packed(path, 64, &frames(63));
    }),
    ("a frame of zeroes", zeroes),
    ("records of 4 GiB", |path| records(path, 256)),
    ("records as large as their lane", |path| records(path, 3)),
    ("a jbd2 log of 1 GiB", |path| holes(path, home)),
    ("a jbd2 log of 1 GiB of the same block", |path| {
        holes(path, |_| home(0));
    }),
    ("revokes of 2.6 million blocks", revokes),
    ("a frame of which every other chunk is damaged", rotten),
];

/// A block that nothing else uses, behind the metadata that mke2fs puts at the start of the volume.
fn home(i: u64) -> u64 {
    1_000_000 + i
}

/// The block lists of `count` frames with 16 MiB each; the blocks of all frames are interleaved.
fn frames(count: u64) -> Vec<Vec<u64>> {
    let of = |frame| (0..PER_CHUNK as u64).map(move |i| home(i * count + frame));
    (0..count).map(|frame| of(frame).collect()).collect()
}

/// A StetFS log on a volume. Its blocks are contiguous, and the first one is its superblock.
pub(super) struct Forged {
    file: File,
    first: u64,
    header: LogHeader,
}

impl Forged {
    /// A volume with a StetFS log, as a killed server leaves it.
    fn new(path: &Path, journal_mib: u32) -> Forged {
        make(path, journal_mib, &[]);
        Forged::on(path, journal_mib)
    }

    /// Makes such a log on an existing volume.
    pub(super) fn on(path: &Path, journal_mib: u32) -> Forged {
        let device = Arc::new(MemDevice::load(path).unwrap());
        let fs = Fs::open(device.clone(), options(preset::LDJ)).unwrap();
        let made = fs.mkdir(&Default::default(), stetfs::low::ROOT_INO, b"dir", 0o755, 0);
        fs.forget(made.unwrap().ino, 1);
        let (send, done) = mpsc::channel();
        fs.sync_all(Box::new(move |result| send.send(result).unwrap()));
        done.recv().unwrap().unwrap();
        device.fork().save(path).unwrap();
        drop(fs);
        let first = log_at(path);
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut copy = vec![0; COPY_BYTES];
        let log_blocks = (u64::from(journal_mib) << 20) / BLOCK as u64;
        let copies = [0, 1].map(|i| {
            let at = (first + copy_at(i, BLOCK as u32)) * BLOCK as u64;
            file.read_exact_at(&mut copy, at).unwrap();
            LogHeader::decode(&copy, log_blocks).unwrap()
        });
        let header = copies.into_iter().max_by_key(|h| h.generation).unwrap();
        Forged {
            file,
            first,
            header,
        }
    }

    fn write(&self, log_block: u64, bytes: &[u8]) {
        let at = (self.first + log_block) * BLOCK as u64;
        self.file.write_all_at(bytes, at).unwrap();
    }

    /// Writes both copies of the header with these lanes.
    fn lanes(&mut self, lanes: Vec<Lane>, file_lanes: u16) {
        self.header.lanes = lanes;
        self.header.file_lanes = file_lanes;
        self.header.generation += 2;
        for copy in 0..2 {
            self.write(copy_at(copy, BLOCK as u32), &self.header.encode());
        }
    }

    /// The first lane, to be read from a frame at its start.
    fn lane(&self) -> Lane {
        let lane = self.header.lanes[0];
        Lane {
            tail_at: lane.first,
            tail_seq: 1,
            ..lane
        }
    }

    fn frame(&self, lane: u16, seq: u64, images: Vec<u64>) -> Frame {
        let chunk = |images: &[u64]| {
            let stored = zstd(images.len() * BLOCK);
            Chunk {
                sum: checksum(&stored),
                stored: stored.len() as u32,
                raw: (images.len() * BLOCK) as u32,
                how: Stored::Zstd,
            }
        };
        Frame {
            kind: Kind::Transaction,
            epoch: self.header.epoch,
            seq,
            stamp: 1000 + seq,
            nanoseconds: 0,
            lane,
            unordered: false,
            chunks: images.chunks(PER_CHUNK).map(chunk).collect(),
            edges: Vec::new(),
            images,
            revokes: Vec::new(),
            floor: 0,
            record: Vec::new(),
        }
    }

    /// Makes all but the first blocks of the log a lane for sync records of files. Gives its first
    /// block.
    pub(super) fn lane_of_records(&mut self) -> u64 {
        let lane = self.lane();
        let middle = lane.first + 2048;
        let (first, last) = (
            Lane {
                end: middle,
                tail_at: 0,
                tail_seq: 1 << 40,
                ..lane
            },
            Lane {
                first: middle,
                tail_at: 0,
                ..lane
            },
        );
        self.lanes(vec![first, last], 1);
        middle
    }

    /// A sync record of a file for this lane.
    pub(super) fn record(&self, seq: u64, images: Vec<u64>, body: Vec<u8>) -> Frame {
        Frame {
            kind: Kind::Record,
            edges: vec![(1, 0)],
            record: body,
            ..self.frame(1, seq, images)
        }
    }

    /// Writes the frame with its chunks. Gives the log block behind it.
    pub(super) fn put(&self, at: u64, frame: &Frame) -> u64 {
        let mut bytes = frame.encode(BLOCK);
        for chunk in &frame.chunks {
            bytes.extend(zstd(chunk.raw as usize));
        }
        bytes.resize(frame.blocks(BLOCK) as usize * BLOCK, 0);
        self.write(at, &bytes);
        at + frame.blocks(BLOCK)
    }
}

/// A Zstandard frame of `len` equal bytes, as blocks of one repeated byte (RFC 8878, 3.1.1).
fn zstd(len: usize) -> Vec<u8> {
    const REPEAT: u32 = 1;
    const LONGEST: usize = 128 << 10;
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
    bytes.extend((len as u32).to_le_bytes());
    let mut left = len;
    while left > 0 {
        let part = left.min(LONGEST);
        left -= part;
        let head = u32::from(left == 0) | (REPEAT << 1) | ((part as u32) << 3);
        bytes.extend(&head.to_le_bytes()[..3]);
        bytes.push(b's');
    }
    bytes
}

/// A log with a frame for each of these lists of blocks.
fn packed(path: &Path, journal_mib: u32, frames: &[Vec<u64>]) {
    let mut log = Forged::new(path, journal_mib);
    let lane = log.lane();
    log.lanes(vec![lane], 0);
    let mut at = lane.first;
    for (homes, seq) in frames.iter().zip(1..) {
        at = log.put(at, &log.frame(0, seq, homes.clone()));
    }
    log.write(at, &[0; BLOCK]);
    assert!(at < lane.end, "the log is full");
}

/// A log of 1 GiB with one frame, which revokes block 0 as often as possible.
fn zeroes(path: &Path) {
    let mut log = Forged::new(path, 1024);
    let lane = log.lane();
    log.lanes(vec![lane], 0);
    let blocks = lane.end - lane.first;
    let frame = Frame {
        revokes: vec![0; (blocks - 8) as usize * (BLOCK / 8)],
        ..log.frame(0, 1, Vec::new())
    };
    let bytes = frame.encode(BLOCK);
    log.write(lane.first, &bytes[..BLOCK]);
}

/// A log that is, but for its first blocks, a lane for sync records. Each record claims to hold 16
/// MiB.
fn records(path: &Path, count: u64) {
    let mut log = Forged::new(path, 64);
    let mut at = log.lane_of_records();
    for seq in 1..=count {
        let homes = (0..PER_CHUNK as u64)
            .map(|i| home((seq << 12) | i))
            .collect();
        at = log.put(at, &log.record(seq, homes, Vec::new()));
    }
}

/// A jbd2 log without checksums, with its first block.
struct Plain {
    file: File,
    at: u64,
    blocks: u64,
}

impl Plain {
    /// A log of `mib` MiB that needs a replay.
    fn new(path: &Path, mib: u32) -> Plain {
        make(path, mib, &["-O", "^metadata_csum,^64bit"]);
        let at = log_at(path) * BLOCK as u64;
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut sb = vec![0; BLOCK];
        file.read_exact_at(&mut sb, at).unwrap();
        // These are s_sequence and s_start.
        sb[24..28].copy_from_slice(&be(1));
        sb[28..32].copy_from_slice(&be(1));
        // This is s_feature_incompat: revokes.
        sb[40..44].copy_from_slice(&be(1));
        file.write_all_at(&sb, at).unwrap();
        let blocks = u64::from(u32::from_be_bytes(sb[16..20].try_into().unwrap()));
        // This is s_feature_incompat of the volume: needs recovery.
        let mut flags = [0; 4];
        file.read_exact_at(&mut flags, 1024 + 96).unwrap();
        let needs = u32::from_le_bytes(flags) | 4;
        file.write_all_at(&needs.to_le_bytes(), 1024 + 96).unwrap();
        Plain { file, at, blocks }
    }

    fn put(&self, log_block: u64, mut bytes: Vec<u8>) {
        bytes.resize(BLOCK, 0);
        let at = self.at + log_block * BLOCK as u64;
        self.file.write_all_at(&bytes, at).unwrap();
    }
}

fn be(value: u32) -> [u8; 4] {
    value.to_be_bytes()
}

/// The header of a block in a jbd2 log.
fn head(kind: u32, tid: u32) -> Vec<u8> {
    [be(0xc03b_3998), be(kind), be(tid)].concat()
}

/// A log whose images, of the blocks that `block` gives, are holes of the image file.
fn holes(path: &Path, block: fn(u64) -> u64) {
    let log = Plain::new(path, 1024);
    // A tag is a block number and flags: same UUID, last tag. The first tag is followed by the
    // UUID.
    let tags = (BLOCK - 12 - 16) / 8;
    let (mut at, mut tid, mut next) = (1, 1, 0);
    while at + tags as u64 + 2 < log.blocks {
        let mut bytes = head(1, tid);
        for i in 0..tags {
            bytes.extend(be(block(next) as u32));
            let flags = (u32::from(i > 0) * 2) | (u32::from(i + 1 == tags) * 8);
            bytes.extend(be(flags));
            if i == 0 {
                bytes.extend([0; 16]);
            }
            next += 1;
        }
        log.put(at, bytes);
        at += 1 + tags as u64;
        log.put(at, head(2, tid));
        at += 1;
        tid += 1;
    }
}

/// A transaction with nothing but revokes, each of another block.
fn revokes(path: &Path) {
    let log = Plain::new(path, 64);
    let per_block = (BLOCK - 16) / 4;
    let mut next = 0u32;
    let blocks = 10 << 8;
    for at in 1..blocks {
        let mut bytes = head(5, 1);
        bytes.extend(be(BLOCK as u32));
        for _ in 0..per_block {
            bytes.extend(be(next));
            next += 1;
        }
        log.put(at, bytes);
    }
    log.put(blocks, head(2, 1));
}

/// A frame of 256 MiB in which every second chunk cannot be unpacked, though its checksum is valid.
fn rotten(path: &Path) {
    let mut log = Forged::new(path, 512);
    let lane = log.lane();
    log.lanes(vec![lane], 0);
    let mut frame = log.frame(0, 1, (0..16 * PER_CHUNK as u64).map(home).collect());
    let mut bad = zstd(frame::MAX_CHUNK);
    bad[0] = 0;
    for chunk in frame.chunks.iter_mut().skip(1).step_by(2) {
        chunk.sum = checksum(&bad);
    }
    log.put(lane.first, &frame);
    let begin = (log.first + lane.first) * BLOCK as u64;
    let places = frame.places(BLOCK);
    for place in places[..frame.chunks.len()].iter().skip(1).step_by(2) {
        log.file.write_all_at(&bad, begin + place).unwrap();
    }
}
