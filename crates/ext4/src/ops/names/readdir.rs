//! The operation readdir.

use crate::error::Result;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::types::DirEntry;

impl Fs {
    /// Passes entries from `cookie` on (0: the start; else the `next` of an earlier entry) to
    /// `emit`, until it returns `false` (it could not take the entry) or the end is reached. `.`
    /// and `..` are included. No lock is held while `emit` runs.
    ///
    /// An entry that exists throughout comes exactly once, whatever is added or removed between the
    /// calls.
    ///
    /// # Errors
    /// ENOTDIR; EUCLEAN for damage.
    pub fn readdir(
        &self,
        f: &OpenRef,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let result = self.names.read_from(&f.inode, cookie, emit);
        self.touch_atime(&f.inode);
        result
    }
}
