//! Changes of names by recovery, which repeats what a log contains (replay.A3).
//!
//! Redo is not an operation of a user. The volume is in the older state of the last commit. Its
//! permissions, flags, link limits and quotas do not apply to changes that were allowed, made and
//! acknowledged later. Only a change that is impossible on any volume is refused, as damage.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::names::checks::{check_dir, check_name, may_remove, may_unname};
use crate::ops::attributes::Inherited;
use crate::ops::names::create::New;
use crate::types::{Ctx, Ino};

impl Fs {
    /// Makes an inode with its former number and bytes, and its name.
    ///
    /// # Errors
    /// EEXIST if the name exists; `Corrupt`; ENOSPC if there is no block for it.
    pub(crate) fn redo_make(&self, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Arc<Inode>> {
        let dir = self.redo_in(parent, name)?;
        let dir_body = dir.body.write();
        self.redo_check(&dir, &dir_body)?;
        let plan = self.names.dir_plan(&dir, &dir_body, name)?;
        let inherited = Inherited::nothing(new.mode);
        let place = (&*dir, dir_body, plan);
        let inode = self.make_in(&Ctx::ROOT, place, name, new, &inherited)?;
        self.forget(inode.ino, 1);
        Ok(inode)
    }

    /// Gives an inode that is not a directory another name.
    ///
    /// # Errors
    /// As for [`redo_make`](Self::redo_make).
    pub(crate) fn redo_link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let dir = self.redo_in(parent, name)?;
        let inode = self.inodes.iget(ino)?;
        // An inode without a name is deleted with its last user.
        let _used = self.open_ref(Arc::clone(&inode), 0)?;
        let mut dir_body = dir.body.write();
        self.redo_check(&dir, &dir_body)?;
        let plan = self.names.dir_plan(&dir, &dir_body, name)?;
        let mut body = inode.body.write_nested();
        if body.links() == 0 && !inode.linkable.load(Ordering::Acquire) {
            let detail = format!("a name for inode {ino}, which was deleted");
            return Err(FsError::corrupt("journal", 0, detail));
        }
        let place = (&*dir, &mut *dir_body, plan);
        self.link_in(&Ctx::ROOT, place, name, (&inode, &mut body))
    }

    /// Removes a name of a file or of an empty directory. Returns whether it existed.
    ///
    /// # Errors
    /// ENOTEMPTY; `Corrupt`; errors of the device.
    pub(crate) fn redo_remove(&self, parent: Ino, name: &[u8]) -> Result<bool> {
        let dir = self.redo_in(parent, name)?;
        let inode = {
            let mut dir_body = dir.body.write();
            self.redo_check(&dir, &dir_body)?;
            let (found, inode) = match self.names.find_child(&dir, &dir_body, name) {
                Err(FsError::Errno(libc::ENOENT)) => return Ok(false),
                found => found?,
            };
            let body = inode.body.write_nested();
            if self.vol.opts.canary.redo_as_user {
                may_unname(&body)?;
            }
            self.remove_found((&dir, &mut dir_body), name, &found, (&inode, body))?;
            inode
        };
        self.iput(&inode);
        Ok(true)
    }

    /// The inode that a name leads to.
    ///
    /// # Errors
    /// ENOTDIR; `Corrupt`; errors of the device.
    pub(crate) fn redo_find(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        check_name(name)?;
        let dir = self.inodes.iget(parent)?;
        let body = dir.body.read();
        check_dir(&body)?;
        Ok(self
            .names
            .dir_find(&dir, &body, name)?
            .map(|found| found.ino))
    }

    /// The directory of a name in a log, with its entries in blocks.
    fn redo_in(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>> {
        check_name(name)?;
        self.throttle()?;
        let dir = self.inodes.iget(parent)?;
        self.names.dir_move_out(&dir)?;
        Ok(dir)
    }

    /// Checks a directory whose names changed according to the log.
    ///
    /// # Errors
    /// `Corrupt` if it has no name itself any more, or more links than any directory; ENOTDIR.
    fn redo_check(&self, dir: &Inode, body: &InodeBody) -> Result<()> {
        if self.vol.opts.canary.redo_as_user {
            may_remove(body)?;
        }
        check_dir(body)?;
        if body.links() == 0 {
            let detail = format!("a name in directory {}, which was removed", dir.ino);
            return Err(FsError::corrupt("journal", 0, detail));
        }
        if body.links() == u16::MAX {
            let detail = format!("it has {} links", body.links());
            return Err(FsError::corrupt("inode", dir.ino.into(), detail));
        }
        Ok(())
    }
}
