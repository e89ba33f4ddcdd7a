//! A ring of bytes in a region: bytes past its end continue at its first byte.

use std::ops::Range;

use stetfs_nvm::Region;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::region::LINE;

use crate::error::Result;

/// The number of bytes that a search reads at once.
const PIECE: u64 = 1 << 20;

/// A part of a region, as a ring. Positions are byte offsets in the region.
pub(super) struct Round<'r> {
    pub(super) region: &'r dyn Region,
    pub(super) room: Range<u64>,
}

impl Round<'_> {
    /// The size of the ring, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.room.end - self.room.start
    }

    /// The position `by` bytes after `at`.
    pub(super) fn advance(&self, at: u64, by: u64) -> u64 {
        self.room.start + (at - self.room.start + by) % self.len().max(1)
    }

    /// The pieces of `len` bytes from `at` on; the second piece is the one after the wrap.
    fn pieces(&self, at: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = self.room;
        let first = len.min(end.saturating_sub(at));
        [at..at + first, start..start + (len - first)]
            .into_iter()
            .filter(|piece| !piece.is_empty())
    }

    /// Stores bytes, which may wrap.
    ///
    /// # Errors
    /// The region's, as in the methods below.
    pub(super) fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for piece in self.pieces(at, bytes.len() as u64) {
            let (now, later) = rest.split_at(to_usize(piece.end - piece.start));
            self.region.store(piece.start, now)?;
            rest = later;
        }
        Ok(())
    }

    pub(super) fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(len)];
        let mut rest = &mut bytes[..];
        for piece in self.pieces(at, len) {
            let (now, later) = rest.split_at_mut(to_usize(piece.end - piece.start));
            self.region.read(piece.start, now)?;
            rest = later;
        }
        Ok(bytes)
    }

    /// Flushes the lines of stored bytes; a fence must follow.
    pub(super) fn flush(&self, at: u64, len: u64) -> Result<()> {
        for piece in self.pieces(at, len) {
            self.region.flush(piece)?;
        }
        Ok(())
    }

    /// Visits the positions of all lines that begin with these bytes, in their order, until `visit`
    /// returns `true`.
    pub(super) fn search(
        &self,
        magic: &[u8],
        visit: &mut dyn FnMut(u64) -> Result<bool>,
    ) -> Result<()> {
        let mut piece = Vec::new();
        for start in self.room.clone().step_by(to_usize(PIECE)) {
            piece.resize(to_usize(PIECE.min(self.room.end - start)), 0);
            self.region.read(start, &mut piece)?;
            for (line, at) in piece.chunks(LINE).zip((start..).step_by(LINE)) {
                if line.starts_with(magic) && visit(at)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
