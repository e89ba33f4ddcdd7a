//! Changing the size, and taking ranges of blocks away.

use std::ops::Range;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::blockmap::Shape;
use stetfs_ondisk::ext4::extent::{LOGICAL_END, MAX_LEN};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::map::Mapping;
use super::mapping::Removed;
use super::pages::{DataPath, Pages};
use super::store::DataStore;
use super::whole::Steps;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{Freed, credits};
use stetfs_ondisk::num::to_usize;

/// Steps of a long operation after which its handle is given up for a moment: a transaction commits
/// only when all its handles have stopped.
const STEPS: u64 = 128;

impl DataStore {
    /// Largest size of this file, bytes.
    pub(crate) fn max_size_of(&self, body: &InodeBody) -> u64 {
        self.max_size(body.flags().contains(InodeFlags::EXTENTS))
    }

    /// [`max_size_of`](Self::max_size_of) files with extents, or with block maps.
    pub(crate) fn max_size(&self, extents: bool) -> u64 {
        if extents {
            u64::from(u32::MAX) << self.vol.geo.block_bits
        } else {
            Shape::new(self.vol.geo.block_size).max_file_size(self.vol.geo.huge_file())
        }
    }

    /// Sets the size of a file. Shrinking frees the blocks behind the new end, and those behind the
    /// end that an earlier truncation left, in as many transactions as it takes: the caller has put
    /// the inode on the orphan list, and sets the times. Writes the inode.
    ///
    /// # Errors
    /// EFBIG; the journal's and the device's.
    pub(crate) fn truncate_body(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        new_size: u64,
    ) -> Result<()> {
        if new_size > self.max_size_of(body) {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let old_size = body.size();
        let mapped = body.is_mapped();
        self.more_credits(h, inode, body, 2 * credits::WRITE_INODE)?;
        body.set_size(new_size);
        if mapped {
            // What lies behind the end in its block must read as zeroes should the file grow again.
            let end = old_size.min(new_size);
            if new_size > 0 && !self.vol.opts.canary.keep_tail {
                let path = self.data_path(h, body);
                let mut pages = Pages::new(self, inode, path);
                let zeroed = self.zero_behind(&mut pages, inode, body, end);
                pages.done();
                zeroed?;
            }
            if new_size <= old_size {
                let first = new_size.div_ceil(u64::from(self.vol.geo.block_size));
                self.remove_range(h, inode, body, first..LOGICAL_END, Steps::Parts)?;
            }
        }
        self.write_inode_step(h, inode, body)
    }

    /// How changes of this file's data in `h` get home.
    pub(super) fn data_path<'a>(&self, h: &'a Handle<'a>, body: &InodeBody) -> DataPath<'a> {
        if self.new_goes_home(body) {
            DataPath::Overwrites(h)
        } else if self.journals_data(body) {
            DataPath::Journal(h)
        } else {
            DataPath::Home(Some(h))
        }
    }

    /// Zeroes the rest of the block in which byte `end` lies, if it is mapped and written.
    pub(super) fn zero_behind(
        &self,
        pages: &mut Pages<'_>,
        inode: &Inode,
        body: &InodeBody,
        end: u64,
    ) -> Result<()> {
        let size = u64::from(self.vol.geo.block_size);
        self.zero_within(pages, inode, body, end..end.next_multiple_of(size))
    }

    /// Zeroes a range of bytes inside one block, if that is mapped and written.
    pub(super) fn zero_within(
        &self,
        pages: &mut Pages<'_>,
        inode: &Inode,
        body: &InodeBody,
        range: Range<u64>,
    ) -> Result<()> {
        let Ok(lblk) = u32::try_from(range.start >> self.vol.geo.block_bits) else {
            return Ok(());
        };
        if range.is_empty() {
            return Ok(());
        }
        if let Mapping::Mapped {
            start,
            unwritten: false,
            ..
        } = self.map(inode, body, lblk, 1)?
        {
            let base = u64::from(lblk) << self.vol.geo.block_bits;
            let at = to_usize(range.start - base)..to_usize(range.end - base);
            pages.zero(lblk, start, at)?;
            if let Some(h) = pages.journaled() {
                self.inodes.note_blocks(h, inode, lblk, 1);
            }
        }
        Ok(())
    }

    /// Unmaps a range of file blocks and frees what they held, from its end towards its beginning.
    /// In parts it restarts the handle as needed, with everything consistent and the inode written.
    pub(super) fn remove_range(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: Range<u64>,
        steps: Steps,
    ) -> Result<()> {
        // Behind the end nothing is reachable any more, whatever commits. Inside the file a block's
        // data is dropped with the very transaction that takes the block away.
        let behind = range.end == LOGICAL_END;
        if behind {
            self.drop_dirty(h, inode, range.clone())?;
        }
        let kind = if self.journals_data(body) {
            Freed::Journaled
        } else {
            Freed::Data
        };
        for step in 1u64.. {
            let mut most = MAX_LEN;
            if steps == Steps::Parts {
                let part = self.long_run(body, MAX_LEN);
                self.next_step(h, inode, body, part.credits, step)?;
                most = part.len;
            }
            let gone = match self.edit_map(h, inode, body, |map| map.remove_last(&range, most))? {
                Removed::Extent(gone) => gone,
                Removed::Node => continue,
                Removed::Nothing => break,
            };
            if !behind {
                self.drop_dirty(h, inode, u64::from(gone.block)..gone.logical_end())?;
            }
            self.vol
                .whole_or_damaged(|| self.free_extent(h, inode, body, &gone, kind))?;
            self.inodes.note_blocks(h, inode, gone.block, gone.len);
        }
        Ok(())
    }

    /// Sees to it that `need` credits are left; if the transaction has no more, writes the inode
    /// and goes on in the next. The inode's state must be one that may stand after a crash.
    pub(super) fn more_credits(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        need: Credits,
    ) -> Result<()> {
        let left = h.credits_left();
        if left >= need || h.extend(need - left)? {
            return Ok(());
        }
        self.write_inode_step(h, inode, body)?;
        Ok(h.restart(need)?)
    }

    /// [`more_credits`](Self::more_credits) for step number `step` of a long operation, which gives
    /// commits a chance every now and then.
    pub(super) fn next_step(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        need: Credits,
        step: u64,
    ) -> Result<()> {
        if !step.is_multiple_of(STEPS) {
            return self.more_credits(h, inode, body, need);
        }
        self.more_credits(h, inode, body, credits::WRITE_INODE)?;
        self.write_inode_step(h, inode, body)?;
        Ok(h.restart(need)?)
    }

    /// Writes the inode after a change of its size or blocks, also while it is being deleted.
    pub(super) fn write_inode_step(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        self.inodes.store_inode(h, inode, body)?;
        self.inodes.needed(h, inode);
        Ok(())
    }
}
