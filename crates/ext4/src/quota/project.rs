//! Projects: numbers of inodes that directories hand on (feature `project`).

use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::tally::Owner;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits::WRITE_INODE;
use crate::types::{Ctx, Ino};

fn errno<T>(e: i32) -> Result<T> {
    Err(FsError::Errno(e))
}

/// Checks that a directory that hands its project on may take a name of an inode.
///
/// # Errors
/// EXDEV when it is of another project.
pub(crate) fn check_project(dir: &InodeBody, child: &InodeBody) -> Result<()> {
    let hands_on = dir.flags().contains(InodeFlags::PROJINHERIT);
    if hands_on && dir.project().unwrap_or(0) != child.project().unwrap_or(0) {
        return errno(libc::EXDEV);
    }
    Ok(())
}

impl Fs {
    fn has_projects(&self) -> bool {
        self.vol.geo.ro_compat.contains(RoCompat::PROJECT)
    }

    /// The project of a new inode in this directory.
    pub(crate) fn project_in(&self, dir: &InodeBody) -> u32 {
        let hands_on = self.has_projects() && dir.flags().contains(InodeFlags::PROJINHERIT);
        match hands_on && usize::from(self.vol.geo.want_extra_isize) >= PROJECT_END {
            true => dir.project().unwrap_or(0),
            false => 0,
        }
    }

    /// To whom a new inode in this directory will belong.
    pub(crate) fn owner_in(&self, ctx: &Ctx, dir: &InodeBody) -> Owner {
        [ctx.uid, self.group_in(ctx, dir), self.project_in(dir)]
    }

    /// The inode's project; 0 where it has no room for one.
    pub fn project(&self, ino: Ino) -> Result<u32> {
        let inode = self.inodes.iget(ino)?;
        let project = inode.body.read().project();
        Ok(project.unwrap_or(0))
    }

    /// Gives the inode to another project.
    ///
    /// # Errors
    /// EPERM for who is neither owner nor root, and for immutable files; EOPNOTSUPP on volumes
    /// without projects, but for project 0; EOVERFLOW when the inode has no room for it;
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
        let h = self.vol.journal.begin(WRITE_INODE)?;
        body.set_project(project);
        body.touch(self.vol.now());
        self.vol.whole(|| self.inodes.write_inode(&h, inode, body))
    }
}

/// `i_extra_isize` of an inode with room for a project.
const PROJECT_END: usize = 32;
