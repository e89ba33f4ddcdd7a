//! Lookup of inodes by name in locked directories.

use std::sync::Arc;

use super::checks::errno;
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::types::Ino;

impl Namespace {
    /// The inode that an entry of a locked directory names. If the inode is free or was never used,
    /// the entry is damage.
    pub(crate) fn entry_inode(&self, dir: &Inode, ino: Ino) -> Result<Arc<Inode>> {
        match self.inodes.iget(ino) {
            Err(FsError::Errno(libc::ESTALE)) => {
                let detail = format!(
                    "an entry of directory {} names the unused inode {ino}",
                    dir.ino
                );
                self.vol
                    .noted(Err(FsError::corrupt("directory", 0, detail)))
            }
            found => found,
        }
    }

    /// Looks up a name in a locked directory. Returns the entry and its inode.
    ///
    /// # Errors
    /// ENOENT; damage.
    pub(crate) fn find_child(
        &self,
        dir: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<(super::dir::Found, Arc<Inode>)> {
        let Some(found) = self.dir_find(dir, body, name)? else {
            return errno(libc::ENOENT);
        };
        self.vol
            .noted(super::checks::check_distinct(&[dir.ino], found.ino))?;
        let inode = self.entry_inode(dir, found.ino)?;
        Ok((found, inode))
    }
}
