//! Lookup of names.

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::names::checks::{check_dir, check_name, errno};
use crate::types::{Attr, Ino};
use std::sync::atomic::Ordering;

impl Fs {
    /// Finds `name` in the directory `parent`. On success the inode counts one more lookup, which
    /// [`Fs::forget`] takes back. `.` and `..` work too, and `.` for any inode: the kernel looks up
    /// inodes by file handle this way.
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
        // The name stays while the directory is locked, and with it the inode.
        let inode = self.names.entry_inode(&dir, ino)?;
        self.inodes.count_lookup(inode.ino);
        drop(body);
        self.counted(&inode)
    }

    /// Attributes of an inode with a known number; counts a lookup.
    fn known(&self, inode: &Inode) -> Result<Attr> {
        self.inodes.count_lookup(inode.ino);
        // It was deleted before it was counted.
        if inode.dead.load(Ordering::Acquire) {
            self.forget(inode.ino, 1);
            return errno(libc::ESTALE);
        }
        self.counted(inode)
    }

    /// Attributes of an inode after a counted lookup; takes the lookup back if they cannot be read.
    fn counted(&self, inode: &Inode) -> Result<Attr> {
        self.attr(inode).inspect_err(|_| self.forget(inode.ino, 1))
    }
}
