//! Changes of a file's size, and removal of ranges of blocks.

use std::ops::Range;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::extent::{LOGICAL_END, MAX_LEN};

use crate::data::content::pages::{DataPath, Pages};
use crate::data::content::whole::Steps;
use crate::data::maps::map::Mapping;
use crate::data::maps::mapping::Removed;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{Freed, credits};
use stetfs_ondisk::num::to_usize;

impl DataStore {
    /// Sets the size of a file and writes the inode. Shrinking frees the blocks behind the new end,
    /// and blocks that an earlier truncation left behind the old end, in as many transactions as
    /// needed. The caller has put the inode on the orphan list, and sets the times.
    ///
    /// # Errors
    /// EFBIG; errors of the journal and the device.
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
            // The rest of the last block must read as zeroes if the file grows again.
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

    /// The data path of this file's changes in `h`.
    pub(crate) fn data_path<'a>(&self, h: &'a Handle<'a>, body: &InodeBody) -> DataPath<'a> {
        if self.new_goes_home(body) {
            DataPath::Overwrites(h)
        } else if self.journals_data(body) {
            DataPath::Journal(h)
        } else {
            DataPath::Home(Some(h))
        }
    }

    /// Zeroes the rest of the block in which byte `end` lies, if it is mapped and written.
    pub(crate) fn zero_behind(
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
    pub(in crate::data) fn zero_within(
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

    /// Unmaps a range of file blocks and frees the blocks, from the end of the range to its
    /// beginning. With [`Steps::Parts`] it restarts the handle as needed, with everything
    /// consistent and the inode written.
    pub(crate) fn remove_range(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: Range<u64>,
        steps: Steps,
    ) -> Result<()> {
        // Behind the end of the file no block is reachable any more, whichever transaction commits.
        // Inside the file a block's data is dropped in the same transaction as the block.
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
}
