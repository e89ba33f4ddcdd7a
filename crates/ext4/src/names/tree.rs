//! Where a directory lies in the tree.

use std::collections::HashSet;

use super::checks::check_dir;
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::types::{Ino, ROOT_INO};

/// A directory and all above it.
pub(super) struct Ancestry(HashSet<Ino>);

impl Ancestry {
    /// Whether `dir` is the directory itself or lies above it.
    pub(super) fn contains(&self, dir: Ino) -> bool {
        self.0.contains(&dir)
    }
}

impl Namespace {
    /// A directory and all above it, up to the root. It stays true while the caller holds
    /// `rename_lock`; no inode may be locked.
    ///
    /// # Errors
    /// ENOTDIR, ENOENT for a directory that was removed, EUCLEAN for a loop.
    pub(super) fn ancestry(&self, dir: Ino) -> Result<Ancestry> {
        let mut seen = HashSet::new();
        let mut at = dir;
        while seen.insert(at) {
            if at == ROOT_INO {
                return Ok(Ancestry(seen));
            }
            let inode = self.inodes.iget(at)?;
            let body = inode.body.read();
            check_dir(&body)?;
            if body.links() == 0 {
                return Err(FsError::Errno(libc::ENOENT));
            }
            at = self.dir_parent(&inode, &body)?;
        }
        let detail = format!("the way up from directory {dir} comes back to {at}");
        self.vol
            .noted(Err(FsError::corrupt("directory", 0, detail)))
    }
}
