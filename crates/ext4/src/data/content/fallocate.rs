//! Changes of ranges for fallocate: allocating, punching and zeroing.

use std::ops::Range;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::extent::MAX_UNWRITTEN_LEN;

use crate::data::content::pages::Pages;
use crate::data::content::whole::Steps;
use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{AllocFor, credits};
use crate::types::FallocateMode;
use stetfs_ondisk::num::bounded32;

impl DataStore {
    /// Changes the map, the content and the size. Credits to write the inode are left, also after
    /// an error.
    pub(crate) fn change_blocks(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        mode: FallocateMode,
        range: &Range<u64>,
    ) -> Result<()> {
        let adds = match mode {
            FallocateMode::PunchHole => Ok(()),
            // Readers cannot see this change, so it may be made in parts.
            _ => self.fill_holes(h, inode, body, range),
        };
        let whole = self.whole_blocks(range);
        let need = adds.and_then(|()| match mode {
            FallocateMode::PunchHole => self.punch_credits(inode, body, whole),
            FallocateMode::ZeroRange { .. } => self.zero_credits(inode, body, whole),
            FallocateMode::Allocate { .. } => Ok(1 + credits::WRITE_INODE),
        });
        let least = credits::WRITE_INODE;
        let steps = self.whole_change(h, inode, body, *need.as_ref().unwrap_or(&least))?;
        need?;
        let changed = match mode {
            FallocateMode::PunchHole => self.punch(h, inode, body, range, steps),
            FallocateMode::ZeroRange { .. } => self.zero_range(h, inode, body, range, steps),
            FallocateMode::Allocate { .. } => Ok(()),
        };
        if steps == Steps::Parts {
            self.more_credits(h, inode, body, 1 + credits::WRITE_INODE)?;
        }
        changed?;
        match mode {
            FallocateMode::Allocate { keep_size: false }
            | FallocateMode::ZeroRange { keep_size: false }
                if range.end > body.size() => {}
            _ => return Ok(()),
        }
        let mut pages = Pages::new(self, inode, self.data_path(h, body));
        let zeroed = self.zero_behind(&mut pages, inode, body, body.size());
        pages.done();
        body.set_size(range.end);
        debug_assert!(
            h.credits_left() > 0,
            "a change took more credits than planned"
        );
        zeroed
    }

    /// Clusters that are needed to fill the holes of a range, and the most that the map needs for
    /// nodes.
    pub(crate) fn space_for(
        &self,
        inode: &Inode,
        body: &InodeBody,
        range: &Range<u64>,
    ) -> Result<(u64, u64)> {
        let blocks = self.blocks_of(range);
        let (mut at, mut holes, mut pieces) = (blocks.start, 0u64, 0u64);
        let mut blocks_in_holes = 0;
        while at < blocks.end {
            let next = self.next_extent(inode, body, at)?;
            let hole_end = next.map_or(blocks.end, |e| u64::from(e.block).clamp(at, blocks.end));
            if hole_end > at {
                holes += self.clusters_for(inode, body, at..hole_end)?;
                blocks_in_holes += hole_end - at;
                pieces += 1 + (hole_end - at) / u64::from(MAX_UNWRITTEN_LEN);
            }
            at = next.map_or(blocks.end, |e| e.logical_end());
        }
        let per_node = u64::from(self.vol.geo.block_size) / 24;
        let nodes = match blocks_in_holes {
            0 => 0,
            n => self.map_space(body, n) + pieces / per_node,
        };
        Ok((holes, nodes))
    }

    /// Allocates the unmapped blocks of a range, as unwritten extents.
    fn fill_holes(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: &Range<u64>,
    ) -> Result<()> {
        let blocks = self.blocks_of(range);
        let (mut at, mut step) = (blocks.start, 0);
        while at < blocks.end {
            let lblk = u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let most = bounded32(blocks.end - at);
            let done = match self.map(inode, body, lblk, most)? {
                Mapping::Mapped { len, .. } => len,
                Mapping::Hole { len } => {
                    let need = self.map_credits(body) + credits::ALLOC_BLOCKS;
                    step += 1;
                    self.next_step(h, inode, body, need, step)?;
                    let part = (lblk, len.min(MAX_UNWRITTEN_LEN));
                    let space = self
                        .alloc_for(h, inode, body, part, u64::MAX, AllocFor::Data)?
                        .ok_or(FsError::Errno(libc::ENOSPC))?;
                    self.map_new(h, inode, body, lblk, &space, true)?;
                    let run = space.run;
                    self.inodes.note_blocks(h, inode, lblk, run.len);
                    run.len
                }
            };
            at += u64::from(done);
        }
        Ok(())
    }

    /// The blocks that lie completely in a range of bytes.
    fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start.div_ceil(u64::from(self.vol.geo.block_size))
            ..range.end >> self.vol.geo.block_bits
    }

    /// Zeroes the parts of blocks at both ends of a range.
    fn zero_edges(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &InodeBody,
        range: &Range<u64>,
    ) -> Result<()> {
        let size = u64::from(self.vol.geo.block_size);
        let whole = self.whole_blocks(range);
        let mut pages = Pages::new(self, inode, self.data_path(h, body));
        let result = if whole.start > whole.end {
            // Inside one block.
            self.zero_within(&mut pages, inode, body, range.clone())
        } else {
            self.zero_within(&mut pages, inode, body, range.start..(whole.start * size))
                .and_then(|()| {
                    self.zero_within(&mut pages, inode, body, whole.end * size..range.end)
                })
        };
        pages.done();
        result
    }

    /// Punches a range: frees the blocks inside, and zeroes the parts of blocks at the ends.
    pub(in crate::data) fn punch(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: &Range<u64>,
        steps: Steps,
    ) -> Result<()> {
        self.edge_credits(h, inode, body, steps)?;
        self.zero_edges(h, inode, body, range)?;
        let whole = self.whole_blocks(range);
        if whole.is_empty() {
            Ok(())
        } else {
            self.remove_range(h, inode, body, whole, steps)
        }
    }

    /// Credits for [`zero_edges`](Self::zero_edges), unless the handle already has those for all
    /// steps.
    fn edge_credits(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        steps: Steps,
    ) -> Result<()> {
        match steps {
            Steps::Whole => Ok(()),
            Steps::Parts => self.more_credits(h, inode, body, 2 + credits::WRITE_INODE),
        }
    }

    /// Zeroes a range without holes: makes the blocks inside unwritten, and zeroes the parts of
    /// blocks at the ends.
    pub(in crate::data) fn zero_range(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: &Range<u64>,
        steps: Steps,
    ) -> Result<()> {
        self.edge_credits(h, inode, body, steps)?;
        self.zero_edges(h, inode, body, range)?;
        let mut whole = self.whole_blocks(range);
        let mut step = 0;
        while !whole.is_empty() {
            if steps == Steps::Parts {
                let need = self.map_credits(body);
                step += 1;
                self.next_step(h, inode, body, need, step)?;
            }
            let first = whole.start;
            whole.start = self.edit_map(h, inode, body, |map| map.convert_first(&whole, true))?;
            let (lblk, count) = (bounded32(first), bounded32(whole.start - first));
            self.inodes.note_blocks(h, inode, lblk, count);
            // Their dirty data is dropped: the blocks read as zeroes from here on.
            self.drop_dirty(h, inode, first..whole.start)?;
        }
        Ok(())
    }
}
