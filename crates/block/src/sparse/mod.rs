//! Android's sparse images: a file that describes runs of blocks as data, as a repeated word of
//! four bytes, or as don't care. `fastboot` sends this format, and `img2simg` makes it.
//!
//! All numbers are little-endian. The file's header of 28 bytes: magic, version 1.x (two of 16
//! bits), bytes of this header and of each chunk's (two of 16 bits), bytes of a block (a multiple
//! of 4), blocks, chunks, checksum. Each chunk's header of 12 bytes: kind and a reserved field (two
//! of 16 bits), blocks, bytes of the chunk with its header. The data of the chunk follows.

mod convert;
mod map;
mod read_at;

use std::ops::Range;

pub use convert::{Packed, SparseError, Zeroes, pack, unpack};
pub use map::{BadSparse, SPARSE_MAGIC, SparseMap};
pub use read_at::ReadAt;

use crate::range::{check_discard, check_range};
use crate::{BlockDevice, BlockError, Counters, Op, Read, Result, SECTOR, Stats, Write};
use map::Content;

/// The image in a sparse image file, as a read-only device. Don't-care blocks are zeros.
pub struct SparseDevice<D> {
    inner: D,
    map: SparseMap,
    counters: Counters,
}

impl<D: BlockDevice> SparseDevice<D> {
    /// A device that shows the image of `map`, which was read from `inner`.
    pub fn new(inner: D, map: SparseMap) -> SparseDevice<D> {
        SparseDevice {
            inner,
            map,
            counters: Counters::default(),
        }
    }

    /// Fills `buf` from `offset` on, which was checked.
    fn fill(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let (content, left) = self.map.at(offset);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            let (now, later) = buf.split_at_mut(len);
            match content {
                Content::Raw(at) => self.inner.read(at, now)?,
                // A run begins with a block, and blocks are multiples of four bytes.
                Content::Fill(word) => repeat(word, offset, now),
                Content::DontCare => now.fill(0),
            }
            (offset, buf) = (offset.saturating_add(len as u64), later);
        }
        Ok(())
    }
}

/// Fills `buf`, which begins at byte `offset` of a run of a repeated word.
fn repeat(word: u32, offset: u64, buf: &mut [u8]) {
    let bytes = word.to_le_bytes();
    let mut from = bytes.iter().copied().cycle().skip((offset % 4) as usize);
    buf.fill_with(|| from.next().unwrap_or_default());
}

impl<D: BlockDevice> BlockDevice for SparseDevice<D> {
    fn size(&self) -> u64 {
        self.map.size()
    }

    fn sector_size(&self) -> u32 {
        SECTOR
    }

    fn read_only(&self) -> bool {
        true
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            check_range(Op::Read, read.offset, read.len(), self.size())?;
        }
        let bytes = reads.iter().map(Read::len).sum();
        self.counters.read(reads.len() as u64, bytes);
        for read in reads {
            let mut at = read.offset;
            for slice in read.data.slices_mut() {
                self.fill(at, slice)?;
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn write_batch(&self, _writes: &[Write<'_>]) -> Result<()> {
        Err(BlockError::ReadOnly { op: Op::Write })
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.size())?;
        Err(BlockError::ReadOnly { op: Op::Discard })
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
