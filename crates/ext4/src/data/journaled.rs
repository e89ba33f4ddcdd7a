//! Files whose data goes through the journal.

use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::DataMode;

impl Fs {
    /// Whether the content of this inode goes through the journal.
    pub(super) fn journals_data(&self, body: &InodeBody) -> bool {
        !body.is_regular()
            || body.is_value()
            || self.opts.journal.data() == DataMode::Journal
            || body.flags().contains(InodeFlags::JOURNAL_DATA)
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
            return self.flush_files(&[inode]);
        }
        // An image that is still in the log would be replayed over what is written home later.
        self.journal.commit_all()?;
        Ok(self.journal.checkpoint()?)
    }
}
