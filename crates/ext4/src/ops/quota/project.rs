//! Projects (feature `project`): numbers of inodes that new files inherit from directories.

use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::space::credits::WRITE_INODE;
use crate::types::{Ctx, Ino};

fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

impl Fs {
    /// The inode's project; 0 if it has no room for one.
    pub fn project(&self, ino: Ino) -> Result<u32> {
        let inode = self.inodes.iget(ino)?;
        let project = inode.body.read().project();
        Ok(project.unwrap_or(0))
    }

    /// Gives the inode to another project.
    ///
    /// # Errors
    /// EPERM for a caller that is neither owner nor root, and for immutable files; EOPNOTSUPP on
    /// volumes without projects, except for project 0; EOVERFLOW when the inode has no room for it;
    /// EDQUOT.
    pub fn set_project(&self, ctx: &Ctx, ino: Ino, project: u32) -> Result<()> {
        self.throttle()?;
        let inode = self.inodes.iget(ino)?;
        self.change_project(ctx, &inode, project)?;
        self.settle(&inode)
    }

    fn change_project(&self, ctx: &Ctx, inode: &Inode, project: u32) -> Result<()> {
        let mut body = inode.body.write();
        let body = &mut *body;
        inode.check_alive()?;
        if ctx.uid != 0 && !ctx.owns(body.uid()) {
            return errno(libc::EPERM);
        }
        if body.project().unwrap_or(0) == project {
            return Ok(());
        }
        if !self.has_projects() {
            return errno(libc::EOPNOTSUPP);
        }
        if body.project().is_none() {
            return errno(libc::EOVERFLOW);
        }
        if body.flags().contains(InodeFlags::IMMUTABLE) {
            return errno(libc::EPERM);
        }
        let [uid, gid, _] = body.owner();
        let _quota = self.promise_owner(ctx, inode, body, [uid, gid, project])?;
        let h = self.vol.begin(inode.ino, WRITE_INODE)?;
        body.set_project(project);
        body.touch(self.vol.now());
        self.vol.whole(|| self.inodes.write_inode(&h, inode, body))
    }
}
