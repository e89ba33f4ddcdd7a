//! Finding an inode by name.

use std::sync::Arc;

use super::checks::{check_dir, check_name, errno};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::{Attr, Ino};

impl Fs {
    /// Finds `name` in the directory `parent`. On success the inode counts one more lookup, which
    /// [`Fs::forget`] takes back. `.` and `..` work too.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG; EUCLEAN for damage.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let dir = self.iget(parent)?;
        let body = dir.body.read();
        check_dir(&body)?;
        let ino = match name {
            b"." => parent,
            b".." => self.dir_parent(&dir, &body)?,
            _ => match self.dir_find(&dir, &body, name)? {
                Some(found) => found.ino,
                None => return errno(libc::ENOENT),
            },
        };
        // While the directory is locked the name stays, and with it the inode.
        let inode = self.entry_inode(&dir, ino)?;
        self.count_lookup(inode.ino);
        drop(body);
        match self.attr(&inode) {
            Ok(attr) => Ok(attr),
            Err(e) => {
                self.forget(ino, 1);
                Err(e)
            }
        }
    }

    /// The inode that an entry of a locked directory names. One that is free or was never used is
    /// damage: the entry outlived it.
    pub(super) fn entry_inode(&self, dir: &Inode, ino: Ino) -> Result<Arc<Inode>> {
        let found = self.iget(ino).map_err(|e| match e {
            FsError::Errno(libc::ESTALE) => FsError::corrupt(
                "directory",
                0,
                format!(
                    "an entry of directory {} names the unused inode {ino}",
                    dir.ino
                ),
            ),
            other => other,
        });
        self.noted(found)
    }

    /// Looks a name up in a locked directory and gives what it names.
    ///
    /// # Errors
    /// ENOENT, and damage.
    pub(super) fn find_child(
        &self,
        dir: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<(super::dir::Found, Arc<Inode>)> {
        let Some(found) = self.dir_find(dir, body, name)? else {
            return errno(libc::ENOENT);
        };
        self.noted(super::checks::check_distinct(&[dir.ino], found.ino))?;
        let inode = self.entry_inode(dir, found.ino)?;
        Ok((found, inode))
    }
}
