//! Files whose data goes through the journal.

use stetfs_journal::Credits;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::data::content::write::{CHUNK, SPARE_RUNS};
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::types::DataMode;

impl DataStore {
    /// Whether the content of this inode goes through the journal. New blocks may be an exception
    /// ([`new_goes_home`](Self::new_goes_home)).
    pub(crate) fn journals_data(&self, body: &InodeBody) -> bool {
        !body.is_regular()
            || body.is_value()
            || self.vol.opts.journal.data().keeps_whole()
            || body.flags().contains(InodeFlags::JOURNAL_DATA)
    }

    /// Whether data in new blocks of a file with journaled content is written to its home location
    /// instead, before the transaction that makes the blocks reachable is valid. Not with clusters:
    /// a new block may lie in a cluster that the file had before, and so hold content that an older
    /// transaction makes reachable.
    pub(crate) fn new_goes_home(&self, body: &InodeBody) -> bool {
        self.vol.opts.journal.data() == DataMode::Overwrites
            && self.vol.geo.ratio() == 1
            && body.is_regular()
            && !body.is_value()
            && !body.flags().contains(InodeFlags::JOURNAL_DATA)
    }

    /// Whether one chunk, and one transaction, can hold a write of `bytes` bytes to a file with
    /// such a map.
    pub(crate) fn holds_whole(&self, body: &InodeBody, bytes: usize) -> bool {
        if bytes > CHUNK {
            return false;
        }
        // One block more, as the write may begin inside a block. Each block may be a run of its
        // own.
        let blocks = (bytes as u64).div_ceil(u64::from(self.vol.geo.block_size)) + 1;
        let Ok(blocks) = Credits::try_from(blocks) else {
            return false;
        };
        let runs = self.runs_credits(body, blocks.saturating_add(SPARE_RUNS));
        let need = runs.saturating_add(blocks + 2 * credits::WRITE_INODE);
        need <= self.vol.journal.max_credits()
    }

    /// Ensures that no data of the file is written back outside the journal any more, and that no
    /// lost block shows its former content: from here on all data may be journaled. The caller
    /// holds the inode's lock and no handle.
    ///
    /// # Errors
    /// Failure to write data back; EIO if there are lost blocks.
    pub(crate) fn own_data_home(&self, inode: &Inode) -> Result<()> {
        self.write_back_files(&[inode])?;
        match inode.dirty.ledger.lock().has_lost() {
            true => Err(FsError::Errno(libc::EIO)),
            false => Ok(()),
        }
    }

    /// Prepares a regular file for its data to go through the journal from now on, or no longer
    /// (`EXT4_JOURNAL_DATA_FL`). The caller holds the inode's lock and no handle, and sets the flag
    /// afterwards.
    ///
    /// # Errors
    /// Failure to write data back; then the flag must stay as it is.
    pub(crate) fn switch_data_journaling(&self, inode: &Inode, on: bool) -> Result<()> {
        if on {
            // A block must not be in write-back and in a transaction at the same time.
            return self.own_data_home(inode);
        }
        // Recovery would replay an image that is still in the log over data that is written back
        // later.
        self.vol.journal.commit_all()?;
        Ok(self.vol.journal.checkpoint()?)
    }
}
