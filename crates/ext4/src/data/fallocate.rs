//! Allocating, punching and zeroing ranges.

use std::ops::Range;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::extent::MAX_UNWRITTEN_LEN;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::map::Mapping;
use super::pages::Pages;
use super::store::DataStore;
use super::whole::Steps;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OpenRef};
use crate::space::{AllocFor, credits};
use crate::types::{Ctx, FallocateMode};
use stetfs_ondisk::num::bounded32;

impl Fs {
    /// Allocates, punches or zeroes `len` bytes from `offset` on. A range whose change no
    /// transaction can hold takes several; after a crash on the way the part done stands. Of a
    /// file opened with O_DSYNC it is durable on return.
    ///
    /// # Errors
    /// EINVAL for an empty range, EFBIG, EPERM (immutable, append-only), ENOSPC (known before
    /// anything is allocated), EIO.
    pub fn fallocate(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.change_range(ctx, f, mode, offset, len)?;
        if f.is_unheld() {
            self.inodes.limit_windows(&f.inode);
        }
        match f.flags & libc::O_DSYNC {
            0 => self.settle(&f.inode),
            _ => self.commit_inode(&f.inode),
        }
    }

    fn change_range(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.throttle()?;
        let inode = &f.inode;
        let mut guard = inode.body.write();
        let body = &mut *guard;
        let only_adds = matches!(mode, FallocateMode::Allocate { .. });
        self.data
            .check_changeable(body, only_adds.then_some(u64::MAX))?;
        inode.check_alone()?;
        let end = match offset.checked_add(len) {
            _ if len == 0 => return Err(FsError::Errno(libc::EINVAL)),
            Some(end) if end <= self.data.max_size_of(body) => end,
            _ => return Err(FsError::Errno(libc::EFBIG)),
        };
        let moved = match only_adds {
            true => Some(self.promise_move_out(ctx, body)?),
            false => None,
        };
        self.data.move_out(inode, body)?;
        drop(moved);
        // Without extents nothing can be allocated without being written.
        let punches = matches!(mode, FallocateMode::PunchHole);
        if !punches && !body.flags().contains(InodeFlags::EXTENTS) {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        if !punches {
            self.allow_size(end)?;
        }
        let range = offset..end;
        let (promise, _quota) = match mode {
            FallocateMode::PunchHole => (None, None),
            _ => {
                let (clusters, nodes) = self.data.space_for(inode, body, &range)?;
                let blocks = clusters * u64::from(self.vol.geo.ratio());
                let quota = self.promise(ctx, body.owner(), blocks, 0)?;
                quota.give(body);
                let promise = self
                    .space
                    .reserve(clusters + nodes, self.space.privileged(ctx))?;
                (Some(promise), Some(quota))
            }
        };
        let mut h = self
            .vol
            .journal
            .begin(self.data.map_credits(body) + 4 * credits::WRITE_INODE)?;
        let result = self.data.change_blocks(&mut h, inode, body, mode, &range);
        drop(promise);
        let now = self.vol.now();
        body.set_mtime(now);
        body.set_ctime(now);
        // Also after an error: what was done so far is in the tree.
        match self.vol.opts.canary.lax_fallocate {
            true => self.inodes.store_inode(&h, inode, body)?,
            false => self.data.write_inode_step(&h, inode, body)?,
        }
        result
    }
}

impl DataStore {
    /// Changes the map, the content and the size. Credits to write the inode are left, whatever
    /// comes of it.
    fn change_blocks(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        mode: FallocateMode,
        range: &Range<u64>,
    ) -> Result<()> {
        let adds = match mode {
            FallocateMode::PunchHole => Ok(()),
            // Nobody sees it, so it may be done in parts.
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
        debug_assert!(h.credits_left() > 0, "a change took more than was thought");
        zeroed
    }

    /// Clusters that filling the holes of a range takes, and those for nodes that may be needed.
    fn space_for(&self, inode: &Inode, body: &InodeBody, range: &Range<u64>) -> Result<(u64, u64)> {
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

    /// Allocates what is not mapped in a range, as unwritten extents.
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

    /// The blocks that lie in a range of bytes with all they hold.
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

    /// Takes a range away: blocks inside are freed, parts at the ends are zeroed.
    pub(super) fn punch(
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

    /// Credits for [`zero_edges`](Self::zero_edges), where those for all steps are not there yet.
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

    /// Zeroes a range without holes: blocks inside become unwritten, parts at the ends are zeroed.
    pub(super) fn zero_range(
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
            // What was not home yet never goes there; from here on the blocks read as zeroes.
            self.drop_dirty(h, inode, first..whole.start)?;
        }
        Ok(())
    }
}
