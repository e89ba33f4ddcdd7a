//! The log itself, under its lock: appends, writes in place, cleaning and checkpoints.
//!
//! 1. Flushed content stands: a segment is given away only when its former content is durable at
//!    its new place.
//! 2. A segment that recovery reads is not given away before the next checkpoint.
//! 3. A block is written in place only if recovery does not compare it with its checksum: a later
//!    durable chunk, or a durable checkpoint, says that its chunk was flushed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockDevice, BlockError, Op, ReadList, Result, SharePair, WriteList};
use xxhash_rust::xxh3::xxh3_64;

use super::format::{
    BLOCK, Block, CHUNK_BLOCKS, CHUNK_TRIMS, Checkpoint, Chunk, LEN, NONE, Place, Shape, sum,
};
use super::options::{Cleaner, LogOptions, LogReport};
use super::space::Space;

/// Free segments that writes of the host must leave, for moved blocks and the headers of their
/// chunks.
const RESERVE: usize = 4;

/// Blocks that wait for a flush; `None`: trimmed.
pub(super) type Buffer = BTreeMap<u32, Option<Arc<Block>>>;

/// The place of a block's current content.
pub(super) enum Found<'a> {
    /// In the buffer.
    Waiting(&'a Arc<Block>),
    /// On the device, at this byte.
    At(u64),
    /// Unmapped: zeros.
    Nowhere,
}

#[derive(Clone)]
pub(super) struct Log {
    pub(super) shape: Shape,
    pub(super) options: LogOptions,
    pub(super) space: Space,
    pub(super) buffer: Buffer,
    pub(super) place: Place,
    /// Whether a request to the device failed. Then nothing is written any more, because recovery
    /// would not find later chunks.
    pub(super) broken: bool,
    /// Number of times that the log was opened.
    pub(super) life: u64,
    /// The last chunk written.
    pub(super) number: u64,
    /// The last chunk that is durable.
    pub(super) flushed: u64,
    /// The last chunk whose flush is known from durable blocks (3).
    pub(super) trusted: u64,
    /// The last chunk in each segment.
    pub(super) chunks: Vec<u64>,
    /// The checkpoint slot to write next.
    pub(super) checkpoint: u64,
    pub(super) report: LogReport,
}

/// The error for a lack of space that the reserve should prevent.
fn no_room() -> BlockError {
    let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
    BlockError::io(Op::Write, 0, 0, source)
}

impl Log {
    /// The place of a logical block's current content.
    pub(super) fn look(&self, number: u32) -> Found<'_> {
        match (self.buffer.get(&number), self.space.position(number)) {
            (Some(Some(block)), _) => Found::Waiting(block),
            (Some(None), _) | (None, None) => Found::Nowhere,
            (None, Some(position)) => Found::At(self.shape.byte_of(position)),
        }
    }

    /// Runs a change of the log, unless the log is broken.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Log) -> Result<()>) -> Result<()> {
        if self.broken {
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(BlockError::io(Op::Write, 0, 0, source));
        }
        let done = change(self);
        self.broken = done.is_err();
        done
    }

    /// The seal of this life's chunks; chunks that a crash cut off have another one.
    fn seal(&self) -> u64 {
        self.shape.epoch.wrapping_add(self.life)
    }

    /// Makes everything durable.
    pub(super) fn flush(&mut self, dev: &impl BlockDevice) -> Result<()> {
        if self.buffer.len() < self.options.in_place_below {
            self.write_in_place(dev)?;
        }
        self.append_all(dev)?;
        self.settle(dev)
    }

    /// Makes the appended chunks durable.
    fn settle(&mut self, dev: &impl BlockDevice) -> Result<()> {
        dev.flush()?;
        // The last chunk says that the chunks up to `flushed` are durable.
        if self.number > self.flushed {
            self.trusted = self.flushed;
        }
        self.flushed = self.number;
        Ok(())
    }

    /// Writes waiting blocks in place, as far as that is allowed (3).
    fn write_in_place(&mut self, dev: &impl BlockDevice) -> Result<()> {
        let place = |logical: &u32| {
            let position = self.space.position(*logical)?;
            let chunk = self.chunks[self.space.segment_of(position) as usize];
            (chunk <= self.trusted).then(|| self.shape.byte_of(position))
        };
        let mut list = WriteList::new();
        let mut done = Vec::new();
        for (logical, block) in &self.buffer {
            if let (Some(byte), Some(block)) = (place(logical), block) {
                list.push(byte, &block[..]);
                done.push(*logical);
            }
        }
        list.submit(dev)?;
        drop(list);
        self.report.in_place += done.len() as u64;
        for logical in done {
            self.buffer.remove(&logical);
        }
        Ok(())
    }

    /// Appends all waiting blocks.
    pub(super) fn append_all(&mut self, dev: &impl BlockDevice) -> Result<()> {
        while !self.buffer.is_empty() {
            self.make_room(dev)?;
            self.append(dev)?;
        }
        Ok(())
    }

    /// Appends one chunk of waiting blocks.
    fn append(&mut self, dev: &impl BlockDevice) -> Result<()> {
        let room = self.room()?;
        let mut blocks: Vec<(u32, Arc<Block>)> = Vec::new();
        let mut trims: Vec<(u32, u32)> = Vec::new();
        for (logical, block) in &self.buffer {
            let full = trims.len() >= CHUNK_TRIMS;
            match (block, trims.last_mut()) {
                (Some(block), _) if blocks.len() < room => {
                    blocks.push((*logical, Arc::clone(block)));
                }
                (None, Some((first, n))) if *first + *n == *logical => *n += 1,
                (None, _) if !full => trims.push((*logical, 1)),
                _ => break,
            }
        }
        let (chunk, first) =
            self.begin(blocks.iter().map(|(l, b)| (*l, sum(&b[..]))), trims, false);
        let header = chunk.encode(self.seal());
        let mut list = WriteList::new();
        list.push(self.shape.byte_of(first), &header);
        for (position, (_, block)) in (first + 1..).zip(&blocks) {
            list.push(self.shape.byte_of(position), &block[..]);
        }
        list.submit(dev)?;
        self.report.appended += blocks.len() as u64;
        self.report.chunks += 1;
        for (logical, _) in &chunk.blocks {
            self.buffer.remove(logical);
        }
        for lpn in chunk.trims.iter().flat_map(|(first, n)| *first..first + n) {
            self.buffer.remove(&lpn);
        }
        self.apply(&chunk, first);
        Ok(())
    }

    /// Number of blocks for which the next chunk has space, in a new segment if necessary.
    fn room(&mut self) -> Result<usize> {
        if self.shape.segment_blocks - self.place.offset < 2 {
            let next = self.space.free.pop_first().ok_or_else(no_room)?;
            self.space.chain.insert(next);
            self.place = Place {
                segment: self.place.next,
                offset: 0,
                next,
            };
        }
        let room = self.shape.segment_blocks - self.place.offset - 1;
        Ok((room as usize).min(CHUNK_BLOCKS))
    }

    /// Begins a chunk: gives the chunk and its header's position, and moves the end of the log
    /// behind it.
    fn begin(
        &mut self,
        blocks: impl Iterator<Item = (u32, u32)>,
        trims: Vec<(u32, u32)>,
        moved: bool,
    ) -> (Chunk, u32) {
        self.number += 1;
        let chunk = Chunk {
            number: self.number,
            flushed: self.flushed,
            next: self.place.next,
            moved,
            blocks: blocks.collect(),
            trims,
        };
        let first = self.place.segment * self.shape.segment_blocks + self.place.offset;
        self.place.offset += 1 + chunk.blocks.len() as u32;
        (chunk, first)
    }

    /// Maps the blocks of a chunk whose header is at `first`.
    pub(super) fn apply(&mut self, chunk: &Chunk, first: u32) {
        for (position, (logical, _)) in (first + 1..).zip(&chunk.blocks) {
            self.space.set(*logical, position);
        }
        for logical in chunk.trims.iter().flat_map(|(first, n)| *first..first + n) {
            self.space.set(logical, NONE);
        }
        let segment = self.space.segment_of(first);
        self.chunks[segment as usize] = chunk.number;
    }

    /// Cleans segments until there is a reserve.
    fn make_room(&mut self, dev: &impl BlockDevice) -> Result<()> {
        let mut tries = 4 * self.shape.segments;
        while self.space.free.len() < RESERVE {
            tries = tries.checked_sub(1).ok_or_else(no_room)?;
            let gain = |log: &Log| {
                let victim = log.space.victim()?;
                // The gain must be at least the header of a chunk.
                (log.space.live(victim) + 2 < log.shape.segment_blocks).then_some(victim)
            };
            match gain(self) {
                Some(victim) => self.clean(victim, dev)?,
                None => self.write_checkpoint(dev)?,
            }
        }
        Ok(())
    }

    /// Moves the live blocks of a segment, and gives the segment away.
    fn clean(&mut self, victim: u32, dev: &impl BlockDevice) -> Result<()> {
        let living = self.space.living(victim);
        let before = self.number;
        let mut chunks = Vec::new();
        let mut rest = &living[..];
        while !rest.is_empty() {
            let n = self.room()?.min(rest.len());
            let (some, others) = rest.split_at(n);
            let entries = some.iter().map(|(logical, _)| (*logical, 0));
            let (chunk, first) = self.begin(entries, Vec::new(), true);
            self.move_blocks(some, first + 1, dev)?;
            chunks.push((chunk, first));
            rest = others;
        }
        // The moved blocks, and the chunks before them, are flushed before the new chunks say so.
        dev.flush()?;
        self.flushed = before;
        for (chunk, first) in &mut chunks {
            chunk.flushed = before;
            dev.write(self.shape.byte_of(*first), &chunk.encode(self.seal()))?;
        }
        // The new chunks are flushed before the segment is reused (1).
        for (chunk, first) in &chunks {
            self.apply(chunk, *first);
        }
        self.settle(dev)?;
        self.report.moved += living.len() as u64;
        self.report.cleaned += 1;
        self.give_away(victim, dev)
    }

    /// Moves blocks to the places of a chunk's blocks.
    fn move_blocks(
        &mut self,
        some: &[(u32, u32)],
        first: u32,
        dev: &impl BlockDevice,
    ) -> Result<()> {
        if self.options.cleaner == Cleaner::Share && self.share(some, first, dev)? {
            self.report.shared += some.len() as u64;
            return Ok(());
        }
        let mut bytes = vec![[0; LEN]; some.len()];
        let mut reads = ReadList::new();
        for ((_, from), block) in some.iter().zip(&mut bytes) {
            reads.push(self.shape.byte_of(*from), block);
        }
        reads.submit(dev)?;
        let mut list = WriteList::new();
        for (to, block) in (first..).zip(&bytes) {
            list.push(self.shape.byte_of(to), block);
        }
        list.submit(dev)
    }

    /// Moves blocks by shares; false if the device cannot share, or not so many.
    fn share(&self, some: &[(u32, u32)], first: u32, dev: &impl BlockDevice) -> Result<bool> {
        let Some(share) = dev.share() else {
            return Ok(false);
        };
        let limits = share.limits();
        if u64::from(limits.unit) > BLOCK || !BLOCK.is_multiple_of(u64::from(limits.unit)) {
            return Ok(false);
        }
        let batch = (limits.pairs * u64::from(limits.unit) / BLOCK).max(1) as usize;
        let pair = |(to, (_, from)): (u32, &(u32, u32))| SharePair {
            dst: self.shape.byte_of(to),
            src: self.shape.byte_of(*from),
            len: BLOCK,
        };
        let pairs: Vec<SharePair> = (first..).zip(some).map(pair).collect();
        for batch in pairs.chunks(batch) {
            match share.share_batch(batch) {
                Err(BlockError::ShareReferences { .. }) => return Ok(false),
                done => done?,
            }
        }
        Ok(true)
    }

    /// Frees a segment without live blocks.
    fn give_away(&mut self, segment: u32, dev: &impl BlockDevice) -> Result<()> {
        dev.discard(self.bytes_of(segment))?;
        self.space.free.insert(segment);
        Ok(())
    }

    fn bytes_of(&self, segment: u32) -> Range<u64> {
        let first = self.shape.byte_of(segment * self.shape.segment_blocks);
        first..first + u64::from(self.shape.segment_blocks) * BLOCK
    }

    /// Writes the map, so that recovery starts from it.
    pub(super) fn write_checkpoint(&mut self, dev: &impl BlockDevice) -> Result<()> {
        self.settle(dev)?;
        let mut map: Vec<u8> = self
            .space
            .map()
            .iter()
            .flat_map(|p| p.to_le_bytes())
            .collect();
        map.resize(self.shape.map_blocks() as usize * LEN, 0);
        let checkpoint = Checkpoint {
            life: self.life,
            chunk: self.number,
            place: self.place,
            sum: xxh3_64(&map),
        };
        let at = self.shape.checkpoint_at(self.checkpoint);
        dev.write(at + BLOCK, &map)?;
        dev.flush()?;
        dev.write(at, &checkpoint.encode(self.shape.epoch))?;
        dev.flush()?;
        self.checkpoint = 1 - self.checkpoint;
        self.trusted = self.number;
        self.report.checkpoints += 1;
        // (2)
        let chain = [self.place.segment, self.place.next].into();
        let ended = std::mem::replace(&mut self.space.chain, chain);
        for segment in ended {
            if self.space.live(segment) == 0 && !self.space.chain.contains(&segment) {
                self.give_away(segment, dev)?;
            }
        }
        Ok(())
    }
}
