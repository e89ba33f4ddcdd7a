//! Replay of the map and data changes in records of files and fast commits.

use std::ops::Range;

use stetfs_cache::PageRef;
use stetfs_journal::{BlockNr, Handle};
use stetfs_ondisk::ext4::extent::{LOGICAL_END, MAX_UNWRITTEN_LEN};
use stetfs_ondisk::stet::record::Run;

use crate::data::content::pages::{DataPath, Holds, Pages};
use crate::data::content::whole::{LongRun, Steps};
use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{BlockRun, credits};

impl DataStore {
    /// Unmaps file blocks. Blocks behind the last possible file block are ignored.
    pub(crate) fn unmap(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        range: Range<u64>,
    ) -> Result<()> {
        let range = range.start..range.end.min(LOGICAL_END);
        if range.is_empty() || body.is_inline() {
            return Ok(());
        }
        self.remove_range(h, inode, body, range, Steps::Parts)
    }

    /// Unmaps all blocks of the file.
    pub(crate) fn remove_all(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        self.unmap(h, inode, body, 0..LOGICAL_END)
    }

    /// Maps the beginning of `run` to these blocks, whatever is mapped there now. Returns the
    /// number of blocks done.
    ///
    /// # Errors
    /// `Corrupt` when the blocks belong to another file.
    pub(crate) fn map_exactly(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        run: Run,
    ) -> Result<u32> {
        let most = run.len.min(MAX_UNWRITTEN_LEN);
        let most = most.min(self.map_room(body, run.lblk));
        let LongRun {
            len: most,
            credits: need,
        } = self.long_run(body, most);
        let (len, unwritten) = match self.map(inode, body, run.lblk, most)? {
            Mapping::Hole { len } => {
                self.more_credits(h, inode, body, need)?;
                let new = BlockRun {
                    start: run.start,
                    len,
                };
                let space = self.take_for(h, inode, body, run.lblk, new)?;
                self.map_new(h, inode, body, run.lblk, &space, run.unwritten)?;
                return Ok(space.run.len);
            }
            Mapping::Mapped {
                start,
                len,
                unwritten,
            } if start == run.start => (len, unwritten),
            Mapping::Mapped { len, .. } => {
                let end = u64::from(run.lblk) + u64::from(len);
                self.unmap(h, inode, body, u64::from(run.lblk)..end)?;
                return Ok(0);
            }
        };
        if unwritten != run.unwritten {
            let mut range = u64::from(run.lblk)..u64::from(run.lblk) + u64::from(len);
            while !range.is_empty() {
                let need = self.map_credits(body);
                self.more_credits(h, inode, body, need)?;
                range.start = self.edit_map(h, inode, body, |map| {
                    map.convert_first(&range, run.unwritten)
                })?;
            }
        }
        Ok(len)
    }

    /// Whether file block `lblk` is mapped to block `nr` and written.
    pub(crate) fn is_at(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
        nr: BlockNr,
    ) -> Result<bool> {
        let expected = Mapping::Mapped {
            start: nr,
            len: 1,
            unwritten: false,
        };
        Ok(self.map(inode, body, lblk, 1)? == expected)
    }

    /// Writes a page of a record into file block `lblk`, which must be mapped to block `nr`.
    pub(crate) fn put_page(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
        nr: BlockNr,
        page: &PageRef,
    ) -> Result<()> {
        let is_whole = page.len() == self.vol.cache.block_size();
        if !is_whole || !self.is_at(inode, body, lblk, nr)? {
            let detail = format!("it is not block {lblk} of inode {}", inode.ino);
            return Err(FsError::corrupt("file-level record", nr, detail));
        }
        self.more_credits(h, inode, body, credits::WRITE_INODE)?;
        let mut pages = Pages::new(self, inode, DataPath::Home(Some(h)));
        let put = pages.put(lblk, nr, 0, page, Holds::Nothing);
        pages.done();
        put
    }
}
