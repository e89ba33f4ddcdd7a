//! Reading files.
//!
//! A large read of uncached blocks goes from the device into the caller's buffer, all blocks of a
//! call in one batch. Small reads go through the cache, with read-ahead when they are sequential.

use stetfs_block::ReadList;
use stetfs_journal::BlockNr;

use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use stetfs_ondisk::num::{bounded32, to_usize};

/// Least size of a read that bypasses the cache, bytes.
const LARGE: usize = 256 << 10;
/// Least size of a sequential read that bypasses the cache, bytes.
const LARGE_IN_ORDER: usize = 64 << 10;

impl DataStore {
    /// Fills `buf` with the content from `offset` on; holes read as zeroes. The file's size is not
    /// checked.
    pub(crate) fn read_range(
        &self,
        inode: &Inode,
        body: &InodeBody,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        if body.is_inline() {
            return self.read_inline(inode, body, offset, buf);
        }
        let end = offset.saturating_add(buf.len() as u64);
        let in_order = inode.ahead.follow(offset, end);
        let large = buf.len() >= LARGE || (in_order && buf.len() >= LARGE_IN_ORDER);
        if in_order && !large {
            self.read_ahead(inode, body, end.min(body.size()));
        }
        let bits = self.vol.geo.block_bits;
        let mut list = ReadList::new();
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let lblk = u32::try_from(at >> bits).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let skip = to_usize(at - (u64::from(lblk) << bits));
            let blocks = (skip + rest.len()).div_ceil(self.vol.geo.block_size as usize);
            let mapping = self.map(inode, body, lblk, u32::try_from(blocks).unwrap_or(u32::MAX))?;
            let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = mapping;
            let bytes = (len as usize * self.vol.geo.block_size as usize - skip).min(rest.len());
            let (part, others) = rest.split_at_mut(bytes);
            rest = others;
            at += bytes as u64;
            if let Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } = mapping
            {
                let touched = (skip + bytes).div_ceil(self.vol.geo.block_size as usize);
                self.vol.note_io(false, start, touched as u64);
            }
            match mapping {
                Mapping::Mapped {
                    start,
                    unwritten: false,
                    ..
                } if large => {
                    self.read_run_past_cache(start, skip, part, &mut list)?;
                }
                Mapping::Mapped {
                    start,
                    unwritten: false,
                    ..
                } => self.read_run(start, skip, part)?,
                _ => part.fill(0),
            }
        }
        Ok(list.submit(&**self.vol.cache.device())?)
    }

    /// Copies a run of blocks out of the cache, from byte `skip` of its first block on.
    fn read_run(&self, start: BlockNr, skip: usize, part: &mut [u8]) -> Result<()> {
        let size = self.vol.geo.block_size as usize;
        let blocks = (skip + part.len()).div_ceil(size) as u64;
        if blocks > 1 {
            self.vol.cache.prefetch(start, blocks)?;
        }
        for (nr, skip, piece) in pieces(start, skip, part, size) {
            self.copy_block(nr, skip, piece)?;
        }
        Ok(())
    }

    fn copy_block(&self, nr: BlockNr, skip: usize, piece: &mut [u8]) -> Result<()> {
        let block = self.vol.cache.read(nr)?;
        let page = block.peek();
        match page
            .as_deref()
            .and_then(|p| p.get(skip..skip + piece.len()))
        {
            Some(bytes) => piece.copy_from_slice(bytes),
            None => return Err(FsError::corrupt("data block", nr, "it has no content")),
        }
        Ok(())
    }

    /// Copies the cached blocks of a run, and lists the others to be read from the device
    /// (data.D1). Parts of blocks go through the cache.
    fn read_run_past_cache<'b>(
        &self,
        start: BlockNr,
        skip: usize,
        part: &'b mut [u8],
        list: &mut ReadList<'b>,
    ) -> Result<()> {
        let size = self.vol.geo.block_size as usize;
        let (mut nr, mut skip, mut rest) = (start, skip, part);
        while !rest.is_empty() {
            let here = (size - skip).min(rest.len());
            if here < size {
                let (piece, others) = rest.split_at_mut(here);
                self.copy_block(nr, skip, piece)?;
                (nr, skip, rest) = (nr + 1, 0, others);
                continue;
            }
            let whole = (rest.len() / size) as u64;
            let mut cached = None;
            let missing = (nr..nr + whole).take_while(|nr| {
                cached = self.vol.cache.lookup(*nr);
                cached.is_none()
            });
            let missing = missing.count();
            let (piece, others) = rest.split_at_mut(missing * size);
            list.push(nr * size as u64, piece);
            (nr, rest) = (nr + missing as u64, others);
            if let Some(block) = cached {
                let (piece, others) = rest.split_at_mut(size);
                if let Some(page) = block.peek() {
                    piece.copy_from_slice(&page);
                }
                (nr, rest) = (nr + 1, others);
            }
        }
        Ok(())
    }

    /// Reads ahead for a sequential reader with small reads that now wants data up to `to`. Errors
    /// are ignored: they appear when the blocks are read.
    fn read_ahead(&self, inode: &Inode, body: &InodeBody, to: u64) {
        let Some((from, upto)) = inode.ahead.more(to) else {
            return;
        };
        let bits = self.vol.geo.block_bits;
        let end = upto
            .min(body.size())
            .div_ceil(u64::from(self.vol.geo.block_size));
        let mut at = from >> bits;
        while at < end {
            let Ok(lblk) = u32::try_from(at) else { return };
            let Ok(mapping) = self.map(inode, body, lblk, bounded32(end - at)) else {
                return;
            };
            let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = mapping;
            if let Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } = mapping
                && let Err(e) = self.vol.cache.prefetch(start, u64::from(len))
            {
                tracing::debug!(ino = inode.ino, "read-ahead: {e}");
                return;
            }
            at += u64::from(len);
        }
    }
}

/// Splits `part`, which begins at byte `skip` of block `start`, at block borders.
fn pieces(
    start: BlockNr,
    skip: usize,
    part: &mut [u8],
    size: usize,
) -> impl Iterator<Item = (BlockNr, usize, &mut [u8])> {
    let head = (size - skip).min(part.len());
    let (first, rest) = part.split_at_mut(head);
    let others = rest
        .chunks_mut(size)
        .enumerate()
        .map(move |(i, piece)| (start + 1 + i as u64, 0, piece));
    std::iter::once((start, skip, first)).chain(others)
}
