//! Zeroing and allocation of ranges in files of a group.

use std::ops::Range;

use super::overlay::runs_of;
use super::{AtomicGroup, Member};
use crate::data::maps::map::Mapping;
use crate::error::{FsError, Result};
use crate::types::{Ctx, FallocateMode, Ino};

/// The kind of blocks that a search in a range looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// Blocks that may have content other than zeroes.
    Content,
    /// Blocks that are not allocated.
    Holes,
    /// Blocks of both kinds.
    Either,
}

impl Want {
    fn wants(self, mapping: &Mapping) -> bool {
        match mapping {
            Mapping::Hole { .. } => self != Want::Content,
            Mapping::Mapped { unwritten, .. } => self != Want::Holes && !unwritten,
        }
    }
}

impl AtomicGroup {
    /// Makes a range of a file zeroes, up to the end of the file.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn zero(&mut self, ctx: &Ctx, ino: Ino, offset: u64, len: u64) -> Result<()> {
        let size = self.size(ino)?;
        self.zero_to(
            ctx,
            ino,
            offset..offset.saturating_add(len),
            size,
            Want::Content,
        )
    }

    /// fallocate(2) within the group. Allocated blocks are blocks of zeroes, which count as
    /// written; punched holes keep their blocks.
    ///
    /// # Errors
    /// As for [`write`](Self::write). EINVAL for an empty range. EOPNOTSUPP for space behind the
    /// end of the file with the size to be kept: a group has no such space.
    pub fn fallocate(
        &mut self,
        ctx: &Ctx,
        ino: Ino,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let size = self.size(ino)?;
        let end = match offset.checked_add(len) {
            _ if len == 0 => return Err(FsError::Errno(libc::EINVAL)),
            Some(end) => end,
            None => return Err(FsError::Errno(libc::EFBIG)),
        };
        match mode {
            FallocateMode::PunchHole => self.zero(ctx, ino, offset, len),
            FallocateMode::Allocate { keep_size: true }
            | FallocateMode::ZeroRange { keep_size: true }
                if end > size =>
            {
                Err(FsError::Errno(libc::EOPNOTSUPP))
            }
            FallocateMode::ZeroRange { .. } => {
                self.zero_to(ctx, ino, offset..end, size.max(end), Want::Either)
            }
            FallocateMode::Allocate { .. } => self.fill(ctx, ino, offset..end, size.max(end)),
        }
    }

    /// Makes the wanted blocks of a range zeroes, and sets a size that is not smaller.
    fn zero_to(
        &mut self,
        ctx: &Ctx,
        ino: Ino,
        range: Range<u64>,
        size: u64,
        want: Want,
    ) -> Result<()> {
        let range = range.start.min(size)..range.end.min(size);
        self.move_out(ctx, ino, size, &range)?;
        let blocks = self.blocks_in(ino, &range, want)?;
        let bits = self.fs.vol.geo.block_bits;
        let ranges: Vec<Range<u64>> = blocks
            .map(|r| (r.start << bits).max(range.start)..(r.end << bits).min(range.end))
            .collect();
        self.admit(ctx, ino, size, &ranges)?;
        let overlay = self.overlay(ino)?;
        overlay.zero(range)?;
        overlay.grow(size);
        Ok(())
    }

    /// Fills the holes of a range with blocks of zeroes, and sets a size that is not smaller.
    fn fill(&mut self, ctx: &Ctx, ino: Ino, range: Range<u64>, size: u64) -> Result<()> {
        self.move_out(ctx, ino, size, &range)?;
        let holes = self.blocks_in(ino, &range, Want::Holes)?;
        let bits = self.fs.vol.geo.block_bits;
        let ranges: Vec<Range<u64>> = holes.map(|r| r.start << bits..r.end << bits).collect();
        self.admit(ctx, ino, size, &ranges)?;
        self.overlay(ino)?.grow(size);
        Ok(())
    }

    /// Moves inline content to a block, unless the range is empty.
    fn move_out(&mut self, ctx: &Ctx, ino: Ino, size: u64, range: &Range<u64>) -> Result<()> {
        let is_inline = self.member(ino)?.file.inode.body.read().is_inline();
        match is_inline && !range.is_empty() {
            true => self.admit(ctx, ino, size, &[]),
            false => Ok(()),
        }
    }

    /// The wanted blocks of a range of bytes, as runs.
    fn blocks_in(
        &self,
        ino: Ino,
        range: &Range<u64>,
        want: Want,
    ) -> Result<impl Iterator<Item = Range<u64>> + use<>> {
        let member = self.member(ino)?;
        let asked = match range.is_empty() {
            true => 0..0,
            false => self.fs.data.blocks_of(range),
        };
        let mut blocks = match want {
            Want::Holes => Vec::new(),
            Want::Content | Want::Either => member.overlay.within(asked.clone()),
        };
        // All of them will be in memory at once, so too many are refused before they fill it.
        let limit = self.limit();
        let most = blocks.len() as u64 + u64::from(self.fs.vol.journal.max_credits());
        let mut add = |run: Range<u64>| {
            if blocks.len() as u64 + (run.end - run.start) > most {
                return Err(FsError::GroupFull { limit });
            }
            let new = run.filter(|lblk| !member.overlay.has(*lblk));
            blocks.extend(new.filter_map(|lblk| u32::try_from(lblk).ok()));
            Ok(())
        };
        let shown = self
            .shown_blocks(member)
            .clamp(asked.start, asked.end.max(asked.start));
        self.mapped(member, asked.start..shown, want, &mut add)?;
        // The unchanged file is not visible there, as if there were a hole.
        if want != Want::Content {
            add(shown..asked.end.max(shown))?;
        }
        blocks.sort_unstable();
        Ok(runs_of(blocks).into_iter())
    }

    /// The number of blocks, from the start on, in which the unchanged file is visible. Blocks
    /// behind its end count if nothing was cut off.
    fn shown_blocks(&self, member: &Member) -> u64 {
        match member.overlay.is_cut() {
            true => self.fs.data.blocks_of(&(0..member.overlay.shown())).end,
            false => u64::from(u32::MAX),
        }
    }

    fn mapped(
        &self,
        member: &Member,
        Range { start: mut at, end }: Range<u64>,
        want: Want,
        add: &mut impl FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let inode = &member.file.inode;
        let body = inode.body.read();
        while at < end {
            let lblk = u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let most = u32::try_from(end - at).unwrap_or(u32::MAX);
            let found = self.fs.data.map(inode, &body, lblk, most)?;
            let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = found;
            if want.wants(&found) {
                add(at..at + u64::from(len))?;
            }
            at += u64::from(len);
        }
        Ok(())
    }
}
