//! Finding an inode by name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checks::{check_dir, check_name, errno};
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::{Attr, Ino};

impl Fs {
    /// Finds `name` in the directory `parent`. On success the inode counts one more lookup, which
    /// [`Fs::forget`] takes back. `.` and `..` work too, `.` of any inode: so the kernel finds
    /// again what it has a file handle of.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG; EUCLEAN for damage.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let dir = self.inodes.iget(parent)?;
        if name == b"." {
            return self.known(&dir);
        }
        let body = dir.body.read();
        check_dir(&body)?;
        let ino = match name {
            b".." => self.names.dir_parent(&dir, &body)?,
            _ => match self.names.dir_find(&dir, &body, name)? {
                Some(found) => found.ino,
                None => return errno(libc::ENOENT),
            },
        };
        // While the directory is locked the name stays, and with it the inode.
        let inode = self.names.entry_inode(&dir, ino)?;
        self.inodes.count_lookup(inode.ino);
        drop(body);
        self.counted(&inode)
    }

    /// Attributes of an inode whose number is known, counting a lookup.
    fn known(&self, inode: &Inode) -> Result<Attr> {
        self.inodes.count_lookup(inode.ino);
        // Deleted before it was counted.
        if inode.dead.load(Ordering::Acquire) {
            self.forget(inode.ino, 1);
            return errno(libc::ESTALE);
        }
        self.counted(inode)
    }

    /// Attributes of an inode of which a lookup was counted; not if they cannot be had.
    fn counted(&self, inode: &Inode) -> Result<Attr> {
        self.attr(inode).inspect_err(|_| self.forget(inode.ino, 1))
    }
}

impl Namespace {
    /// The inode that an entry of a locked directory names. One that is free or was never used is
    /// damage: the entry outlived it.
    pub(super) fn entry_inode(&self, dir: &Inode, ino: Ino) -> Result<Arc<Inode>> {
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
        self.vol
            .noted(super::checks::check_distinct(&[dir.ino], found.ino))?;
        let inode = self.entry_inode(dir, found.ino)?;
        Ok((found, inode))
    }
}
