//! Removing names.

use std::sync::Arc;

use stetfs_sync::RwLockWriteGuard;

use crate::durability::MetadataLedger;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::names::checks::{check_name, errno, is_dots, may_remove, may_unname};
use crate::names::dir::Found;
use crate::space::credits::{FREE_INODE, ORPHAN, WRITE_INODE};
use crate::types::{Ctx, Ino};

/// Credits of a removal: a directory block, two inodes, and adding one of them to the orphans or
/// freeing it.
const UNLINK_CREDITS: stetfs_journal::Credits = 1 + 2 * WRITE_INODE + ORPHAN + FREE_INODE;

impl Fs {
    /// Removes the name of a file that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EPERM (immutable or append-only), EROFS.
    pub fn unlink(&self, _ctx: &Ctx, parent: Ino, name: &[u8]) -> Result<()> {
        if is_dots(name) {
            return errno(libc::EISDIR);
        }
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EINVAL for `.`, EPERM (immutable or append-only), EROFS.
    pub fn rmdir(&self, _ctx: &Ctx, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => errno(libc::EINVAL),
            b".." => errno(libc::ENOTEMPTY),
            _ => self.remove(parent, name, true),
        }
    }

    fn remove(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        check_name(name)?;
        self.throttle()?;
        let dir = self.inodes.iget(parent)?;
        self.names.dir_move_out(&dir)?;
        let (inode, synchronous) = {
            let mut dir_body = dir.body.write();
            may_remove(&dir_body)?;
            let (found, inode) = self.names.find_child(&dir, &dir_body, name)?;
            let body = inode.body.write_nested();
            match (want_dir, body.is_dir()) {
                (true, false) => return errno(libc::ENOTDIR),
                (false, true) => return errno(libc::EISDIR),
                _ => may_unname(&body)?,
            }
            let synchronous = self.is_synchronous(&body);
            self.remove_found((&dir, &mut dir_body), name, &found, (&inode, body))?;
            (inode, synchronous)
        };
        self.iput(&inode);
        match synchronous {
            true => self.commit_inode(&dir),
            false => self.settle_names(&dir),
        }
    }
    /// Removes a name that was found in a locked directory, of a locked inode. The caller then
    /// deletes the inode if it is unused ([`iput`](Self::iput)).
    ///
    /// # Errors
    /// ENOTEMPTY: nothing was changed. Errors of the device.
    pub(crate) fn remove_found(
        &self,
        (dir, dir_body): (&Inode, &mut InodeBody),
        name: &[u8],
        found: &Found,
        (inode, mut body): (&Arc<Inode>, RwLockWriteGuard<'_, InodeBody>),
    ) -> Result<()> {
        let is_dir = body.is_dir();
        if is_dir && !self.names.dir_is_empty(inode, &body)? {
            return errno(libc::ENOTEMPTY);
        }
        let h = self.vol.begin(dir.ino, UNLINK_CREDITS)?;
        // An inode with nothing to free and no users is deleted at once, and never becomes an
        // orphan.
        let last = body.links() == 1 && !is_dir;
        let gone = last
            && body.is_bare()
            && !self.inodes.holds_values(&body)
            && self.inodes.take_unused(inode);
        self.vol.whole(|| {
            self.names.dir_remove(&h, dir, dir_body, found)?;
            if gone {
                self.free_now(&h, inode, &mut body)?;
            } else {
                self.names.drop_link(&h, inode, &mut body)?;
            }
            if is_dir {
                self.names.drop_subdir(dir_body);
            }
            self.names.dir_changed(&h, dir, dir_body)
        })?;
        self.inodes
            .note_change(&h, inode, MetadataLedger::names_changed);
        // An inode with another name must not disappear if only this removal is recovered.
        let with_its_file = !is_dir && body.links() == 0;
        self.inodes.note_change(&h, dir, |c, point| {
            c.names.gone(name, with_its_file, point, &self.vol.valid())
        });
        drop(h);
        drop(body);
        if gone {
            self.space.release_window(inode);
            self.inodes.drop_inode(inode);
        }
        Ok(())
    }
}
