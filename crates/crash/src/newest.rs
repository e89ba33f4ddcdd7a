//! The part of a log whose damage cannot be noticed: the newest commits, which nothing later in the
//! log vouches for.

use std::collections::BTreeMap;
use std::ops::Range;

use stetfs::low::{BlockDevice, MemDevice};
use stetfs_ondisk::jbd2::BlockType;
use stetfs_ondisk::jbd2::block::read_header;
use stetfs_ondisk::stet::frame::{self, Frame, Kind};
use stetfs_ondisk::stet::header::{COPY_BYTES, LogHeader, copy_at, copy_blocks};

use crate::judge::space::{Owner, Owners};
use crate::work::Work;

/// The volume's blocks with this part: a commit block; with async_commit the whole transaction; in
/// the StetFS log, frames.
pub(crate) fn unvouched(image: &MemDevice, owners: &Owners, work: &Work) -> Option<Vec<u64>> {
    // mke2fs lays the journal out in the order of its blocks.
    let blocks: Vec<u64> = owners
        .iter()
        .filter(|(_, owner)| *owner == Owner::Journal)
        .map(|(nr, _)| nr)
        .collect();
    let log = Log {
        image,
        blocks,
        size: work.base.block as usize,
    };
    if work.options.journal.is_jbd2() {
        log.last_commit(work.options.async_commit)
    } else {
        log.unvouched_frames()
    }
}

struct Log<'i> {
    image: &'i MemDevice,
    /// The volume's blocks that hold the log.
    blocks: Vec<u64>,
    /// Bytes of a block.
    size: usize,
}

impl Log<'_> {
    fn read(&self, log_blocks: Range<usize>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; log_blocks.len() * self.size];
        for (nr, part) in self
            .blocks
            .get(log_blocks)?
            .iter()
            .zip(bytes.chunks_mut(self.size))
        {
            self.image.read(nr * self.size as u64, part).ok()?;
        }
        Some(bytes)
    }

    fn last_commit(&self, whole: bool) -> Option<Vec<u64>> {
        let mut commits: BTreeMap<u32, usize> = BTreeMap::new();
        for i in 0..self.blocks.len() {
            if let Some((BlockType::Commit, tid)) = read_header(&self.read(i..i + 1)?) {
                commits.insert(tid, i);
            }
        }
        let (newest, at) = commits.last_key_value().map(|(n, at)| (*n, *at))?;
        if !whole {
            return Some(vec![*self.blocks.get(at)?]);
        }
        let before = newest.checked_sub(1).and_then(|n| commits.get(&n));
        let start = before.map_or(1, |i| i + 1);
        Some(self.ring(start, at + 1, 1..self.blocks.len()))
    }

    /// The volume's blocks from one log block to another; the log is a ring, so the range may wrap.
    fn ring(&self, from: usize, to: usize, ring: Range<usize>) -> Vec<u64> {
        let count = (to + ring.len() - from) % ring.len().max(1);
        ring.clone()
            .cycle()
            .skip(from.saturating_sub(ring.start))
            .take(count)
            .filter_map(|i| self.blocks.get(i).copied())
            .collect()
    }

    fn header(&self) -> Option<LogHeader> {
        let size = self.size as u32;
        (0..2)
            .filter_map(|copy| {
                let first = copy_at(copy, size) as usize;
                let bytes = self.read(first..first + copy_blocks(size) as usize)?;
                LogHeader::decode(bytes.get(..COPY_BYTES)?, self.blocks.len() as u64).ok()
            })
            .max_by_key(|header| header.generation)
    }

    fn unvouched_frames(&self) -> Option<Vec<u64>> {
        let header = self.header()?;
        let frames: Vec<(usize, Frame)> = (0..self.blocks.len())
            .filter_map(|at| Some((at, self.frame(at, header.epoch)?)))
            .collect();
        // For each lane the sequence and the stamp up to which other frames vouch for its frames.
        let mut vouched: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        let transactions = header.lanes.len() - usize::from(header.file_lanes);
        for (_, frame) in &frames {
            let seq = match frame.kind {
                _ if frame.unordered => continue,
                Kind::Transaction => frame.seq.saturating_sub(1),
                Kind::Record => frame.floor,
            };
            let own = vouched.entry(frame.lane).or_default();
            own.0 = own.0.max(seq);
            if frame.kind == Kind::Record {
                for (lane, number) in frame.edges.iter().skip(1) {
                    let other = vouched.entry(*lane).or_default();
                    if usize::from(*lane) < transactions {
                        other.0 = other.0.max(*number);
                    } else {
                        other.1 = other.1.max(*number);
                    }
                }
            }
        }
        let mut out = Vec::new();
        for (at, frame) in &frames {
            let (seq, stamp) = vouched.get(&frame.lane).copied().unwrap_or_default();
            if frame.seq > seq && frame.stamp > stamp {
                let lane = header.lanes.get(usize::from(frame.lane))?;
                let ring = lane.first as usize..lane.end as usize;
                out.extend(self.ring(*at, at + frame.blocks(self.size) as usize, ring));
            }
        }
        Some(out)
    }

    /// The frame whose head begins at log block `at`, if the head is valid.
    fn frame(&self, at: usize, epoch: u64) -> Option<Frame> {
        let first = self.read(at..at + 1)?;
        let head = frame::glance(&first, self.blocks.len() as u64).ok()?;
        // A frame that wraps within its head is rare; its rot is counted as that of another frame.
        let bytes = self.read(at..at + head.head_blocks as usize)?;
        let frame = frame::decode(&bytes, self.size).ok()?;
        (frame.epoch == epoch).then_some(frame)
    }
}
