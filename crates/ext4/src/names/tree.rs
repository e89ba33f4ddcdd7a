//! The ancestors of a directory.

use std::collections::HashSet;

use super::checks::check_dir;
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::types::{Ino, ROOT_INO};

/// A directory and all its ancestors.
pub(crate) struct Ancestry(HashSet<Ino>);

impl Ancestry {
    /// Whether `dir` is the directory itself or an ancestor.
    pub(crate) fn contains(&self, dir: Ino) -> bool {
        self.0.contains(&dir)
    }
}

impl Namespace {
    /// A directory and all its ancestors, up to the root. The result stays true while the caller
    /// holds `rename_lock`. The caller holds no inode lock.
    ///
    /// # Errors
    /// ENOTDIR, ENOENT for a directory that was removed, EUCLEAN for a loop.
    pub(crate) fn ancestry(&self, dir: Ino) -> Result<Ancestry> {
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
        let detail = format!("the parents of directory {dir} form a loop at {at}");
        self.vol
            .noted(Err(FsError::corrupt("directory", 0, detail)))
    }
}
