//! Room for changes, and the files that have dirty data.

use crate::error::Result;
use crate::fs::Fs;
use crate::types::Ino;

impl Fs {
    /// Waits until there is room for more changes, and until a frozen volume is thawed. Every
    /// operation that changes something calls this before it takes a lock.
    ///
    /// # Errors
    /// EROFS, ESHUTDOWN.
    pub fn throttle(&self) -> Result<()> {
        self.vol.pass_frost();
        self.vol.writable()?;
        self.vol.notes_through_journal()?;
        self.reap_values();
        self.data.throttle_data()?;
        self.vol.journal.throttle()?;
        Ok(())
    }

    /// The inodes in memory with dirty data.
    pub(crate) fn dirty_inodes(&self) -> Vec<Ino> {
        self.inodes
            .all()
            .iter()
            .filter(|i| !i.dirty.is_clean())
            .map(|i| i.ino)
            .collect()
    }
}
