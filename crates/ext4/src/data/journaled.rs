//! Files whose data goes through the journal.

use stetfs_journal::Credits;
use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::store::DataStore;
use super::write::{CHUNK, SPARE_RUNS};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OpenRef};
use crate::space::credits;
use crate::types::{DataMode, FileType, ROOT_INO};

impl Fs {
    /// Whether a write of so many bytes to what the file has already is whole or absent after any
    /// crash, however it is aligned: its data goes through the journal, and lies in one chunk and
    /// one transaction.
    pub fn writes_whole(&self, file: &OpenRef, bytes: usize) -> bool {
        let body = file.inode.body.read();
        file.inode.kind == FileType::Regular
            && self.journals_whole(&body)
            && self.data.holds_whole(&body, bytes)
    }

    /// The same of files of this volume that lie in few pieces.
    ///
    /// # Errors
    /// The root directory cannot be read.
    pub fn usually_writes_whole(&self, bytes: usize) -> Result<bool> {
        let has_journal = self.vol.geo.compat.contains(Compat::HAS_JOURNAL);
        let is_whole = has_journal && self.vol.opts.journal.data().keeps_whole();
        let root = self.inodes.iget(ROOT_INO)?;
        let body = root.body.read();
        Ok(is_whole && self.data.holds_whole(&body, bytes))
    }
}

impl DataStore {
    /// Whether the content of this inode goes through the journal; new blocks do not where
    /// [they go home](Self::new_goes_home).
    pub(super) fn journals_data(&self, body: &InodeBody) -> bool {
        !body.is_regular()
            || body.is_value()
            || self.vol.opts.journal.data().keeps_whole()
            || body.flags().contains(InodeFlags::JOURNAL_DATA)
    }

    /// Whether data in new blocks of a file whose content goes through the journal goes home all
    /// the same, before the transaction that makes them reachable. A new block may lie in a
    /// cluster that the file had, and so hold what an older transaction shows.
    pub(super) fn new_goes_home(&self, body: &InodeBody) -> bool {
        self.vol.opts.journal.data() == DataMode::Overwrites
            && self.vol.geo.ratio() == 1
            && body.is_regular()
            && !body.is_value()
            && !body.flags().contains(InodeFlags::JOURNAL_DATA)
    }

    /// Whether one chunk, and one transaction, hold a write of so many bytes to a file with such a
    /// map.
    fn holds_whole(&self, body: &InodeBody, bytes: usize) -> bool {
        if bytes > CHUNK {
            return false;
        }
        // One more, as it need not begin where a block does; each may be a run of its own.
        let blocks = (bytes as u64).div_ceil(u64::from(self.vol.geo.block_size)) + 1;
        let Ok(blocks) = Credits::try_from(blocks) else {
            return false;
        };
        let runs = self.runs_credits(body, blocks.saturating_add(SPARE_RUNS));
        let need = runs.saturating_add(blocks + 2 * credits::WRITE_INODE);
        need <= self.vol.journal.max_credits()
    }

    /// Sees to it that none of the file's data goes home by itself any more, and none that was lost
    /// shows what lay there before: from here on all may be journaled. The caller holds the inode's
    /// lock and no handle.
    ///
    /// # Errors
    /// What did not get home.
    pub(super) fn own_data_home(&self, inode: &Inode) -> Result<()> {
        self.flush_files(&[inode])?;
        match inode.dirty.ledger.lock().has_lost() {
            true => Err(FsError::Errno(libc::EIO)),
            false => Ok(()),
        }
    }

    /// Makes a regular file ready for its data to go through the journal from now on, or no longer
    /// (`EXT4_JOURNAL_DATA_FL`). The caller holds the inode's lock and no handle, and then sets the
    /// flag.
    ///
    /// # Errors
    /// What did not get home; the flag must stay as it is then.
    pub(crate) fn switch_data_journaling(&self, inode: &Inode, on: bool) -> Result<()> {
        if on {
            // A block must not be on its way home and in a transaction at the same time.
            return self.own_data_home(inode);
        }
        // An image that is still in the log would be replayed over what is written home later.
        self.vol.journal.commit_all()?;
        Ok(self.vol.journal.checkpoint()?)
    }
}
