//! The on-device format of a log of segments. Words are little-endian; blocks have 4 KiB.
//!
//! | blocks | content |
//! | --- | --- |
//! | 0 | head: the shape of the log, written once |
//! | from 1 on | two slots for a checkpoint: a block with the end of the log, and the map |
//! | from the first whole segment on | segments full of chunks |
//!
//! A chunk is a header block, which describes the chunk, and its blocks. Chunks follow each other
//! in a segment; the header names the segment that follows when no further chunk fits.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Bytes of a block, as a `usize`.
pub(super) const LEN: usize = BLOCK as usize;
/// The position of a logical block that is unmapped.
pub(super) const NONE: u32 = u32::MAX;

const HEAD: u64 = u64::from_le_bytes(*b"stetlog1");
const CHECKPOINT: u64 = u64::from_le_bytes(*b"stetlogc");
const CHUNK: u64 = u64::from_le_bytes(*b"stetlogk");

/// Most blocks of a chunk, and most ranges that it trims.
pub(super) const CHUNK_BLOCKS: usize = 255;
pub(super) const CHUNK_TRIMS: usize = 200;

/// A block that ends with its checksum.
pub(super) type Block = [u8; LEN];

/// A reader of 32-bit words.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn next(&mut self) -> u32 {
        let word = self.bytes.get(self.at..).and_then(|b| b.first_chunk());
        self.at += 4;
        word.map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn long(&mut self) -> u64 {
        u64::from(self.next()) | u64::from(self.next()) << 32
    }
}

/// A block of these words, with its checksum.
fn sealed(words: &[u32]) -> Block {
    let mut block = [0; LEN];
    for (to, word) in block.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let sum = xxh3_64(&block[..LEN - 8]);
    block[LEN - 8..].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The words of a block with a valid checksum and this magic number.
fn opened(block: &Block, magic: u64) -> Option<Words<'_>> {
    let sum = xxh3_64(&block[..LEN - 8]).to_le_bytes();
    let mut words = Words {
        bytes: &block[..LEN - 8],
        at: 0,
    };
    (block[LEN - 8..] == sum && words.long() == magic).then_some(words)
}

fn halves(long: u64) -> [u32; 2] {
    [long as u32, (long >> 32) as u32]
}

/// The checksum of a block's content.
pub(super) fn sum(block: &[u8]) -> u32 {
    xxh3_64(block) as u32
}

/// The shape of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// A number that tells this log from former ones on the device.
    pub(super) epoch: u64,
    pub(super) segment_blocks: u32,
    pub(super) segments: u32,
    pub(super) logical: u32,
}

impl Shape {
    pub(super) fn encode(&self) -> Block {
        let head = [halves(HEAD), halves(self.epoch)].concat();
        sealed(&[head, vec![self.segment_blocks, self.segments, self.logical]].concat())
    }

    pub(super) fn decode(block: &Block) -> Option<Shape> {
        let mut words = opened(block, HEAD)?;
        Some(Shape {
            epoch: words.long(),
            segment_blocks: words.next(),
            segments: words.next(),
            logical: words.next(),
        })
    }

    /// Number of blocks of a map.
    pub(super) fn map_blocks(&self) -> u64 {
        (u64::from(self.logical) * 4).div_ceil(BLOCK)
    }

    /// The first byte of checkpoint slot 0 or 1.
    pub(super) fn checkpoint_at(&self, place: u64) -> u64 {
        (1 + place * (1 + self.map_blocks())) * BLOCK
    }

    /// The first byte of the block at `position`, counted from the first segment.
    pub(super) fn byte_of(&self, position: u32) -> u64 {
        let segment = u64::from(self.segment_blocks);
        let first = (1 + 2 * (1 + self.map_blocks())).div_ceil(segment) * segment;
        (first + u64::from(position)) * BLOCK
    }
}

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    /// Number of its blocks that are used.
    pub(super) offset: u32,
    /// The segment after it.
    pub(super) next: u32,
}

/// A checkpoint without its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// Number of times that the log had been opened.
    pub(super) life: u64,
    /// The last chunk that the map includes.
    pub(super) chunk: u64,
    pub(super) place: Place,
    /// The checksum of the map.
    pub(super) sum: u64,
}

impl Checkpoint {
    pub(super) fn encode(&self, epoch: u64) -> Block {
        let longs = [CHECKPOINT, epoch, self.life, self.chunk, self.sum];
        let longs = longs.map(halves).concat();
        let Place {
            segment,
            offset,
            next,
        } = self.place;
        sealed(&[longs, vec![segment, offset, next]].concat())
    }

    pub(super) fn decode(block: &Block, epoch: u64) -> Option<Checkpoint> {
        let mut words = opened(block, CHECKPOINT)?;
        if words.long() != epoch {
            return None;
        }
        Some(Checkpoint {
            life: words.long(),
            chunk: words.long(),
            sum: words.long(),
            place: Place {
                segment: words.next(),
                offset: words.next(),
                next: words.next(),
            },
        })
    }
}

/// The header of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Number of the chunk, one more than that of the chunk before.
    pub(super) number: u64,
    /// All chunks up to this number were flushed before this one was written.
    pub(super) flushed: u64,
    /// The segment after this one.
    pub(super) next: u32,
    /// Whether its blocks were flushed before it was written, because the cleaner moved them here.
    pub(super) moved: bool,
    /// Logical block and checksum of each block.
    pub(super) blocks: Vec<(u32, u32)>,
    /// Ranges of logical blocks that are unmapped: the first block, and the number.
    pub(super) trims: Vec<(u32, u32)>,
}

impl Chunk {
    pub(super) fn encode(&self, epoch: u64) -> Block {
        let mut words = [CHUNK, epoch, self.number, self.flushed]
            .map(halves)
            .concat();
        let counts = [self.blocks.len() as u32, self.trims.len() as u32];
        words.extend([self.next, u32::from(self.moved)].into_iter().chain(counts));
        let pairs = self.blocks.iter().chain(&self.trims);
        words.extend(pairs.flat_map(|(a, b)| [*a, *b]));
        sealed(&words)
    }

    pub(super) fn decode(block: &Block, epoch: u64) -> Option<Chunk> {
        let mut words = opened(block, CHUNK)?;
        if words.long() != epoch {
            return None;
        }
        let (number, flushed, next) = (words.long(), words.long(), words.next());
        let moved = words.next() != 0;
        let (blocks, trims) = (words.next() as usize, words.next() as usize);
        if blocks > CHUNK_BLOCKS || trims > CHUNK_TRIMS {
            return None;
        }
        let mut pairs = |n| (0..n).map(|_| (words.next(), words.next())).collect();
        Some(Chunk {
            number,
            flushed,
            next,
            moved,
            blocks: pairs(blocks),
            trims: pairs(trims),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let chunk = Chunk {
            number: 1 << 40,
            flushed: (1 << 40) - 3,
            next: 9,
            moved: true,
            blocks: (0..CHUNK_BLOCKS as u32).map(|i| (i, !i)).collect(),
            trims: (0..CHUNK_TRIMS as u32).map(|i| (i * 7, i)).collect(),
        };
        let mut block = chunk.encode(5);
        assert_eq!(Chunk::decode(&block, 5), Some(chunk));
        assert_eq!(Chunk::decode(&block, 6), None);
        assert_eq!(Checkpoint::decode(&block, 5), None);
        block[100] ^= 1;
        assert_eq!(Chunk::decode(&block, 5), None);
        let shape = Shape {
            epoch: 77,
            segment_blocks: 512,
            segments: 100,
            logical: 40_000,
        };
        assert_eq!(Shape::decode(&shape.encode()), Some(shape));
        assert_eq!(shape.map_blocks(), 40);
        assert_eq!(shape.byte_of(0), 512 * BLOCK);
        let checkpoint = Checkpoint {
            life: 2,
            chunk: 3,
            place: Place {
                segment: 1,
                offset: 2,
                next: 3,
            },
            sum: 4,
        };
        assert_eq!(
            Checkpoint::decode(&checkpoint.encode(8), 8),
            Some(checkpoint)
        );
    }
}
