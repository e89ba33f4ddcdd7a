//! Files whose data goes through the journal (`chattr +j`).

use crate::error::Result;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::types::{FileType, ROOT_INO};
use stetfs_ondisk::ext4::features::Compat;

impl Fs {
    /// Whether a write of `bytes` bytes to existing content of the file is atomic at any alignment:
    /// after a crash it is there completely or not at all. Its data goes through the journal, and
    /// fits into one chunk and one transaction.
    pub fn writes_whole(&self, file: &OpenRef, bytes: usize) -> bool {
        let body = file.inode.body.read();
        file.inode.kind == FileType::Regular
            && self.journals_whole(&body)
            && self.data.holds_whole(&body, bytes)
    }

    /// [`writes_whole`](Self::writes_whole) for files of this volume that consist of few pieces.
    ///
    /// # Errors
    /// Failure to read the root directory.
    pub fn usually_writes_whole(&self, bytes: usize) -> Result<bool> {
        let has_journal = self.vol.geo.compat.contains(Compat::HAS_JOURNAL);
        let is_whole = has_journal && self.vol.opts.journal.data().keeps_whole();
        let root = self.inodes.iget(ROOT_INO)?;
        let body = root.body.read();
        Ok(is_whole && self.data.holds_whole(&body, bytes))
    }
}
