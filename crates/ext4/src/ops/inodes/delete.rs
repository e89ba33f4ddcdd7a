//! Deletion of inodes, and of the orphans of an earlier mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::Handle;

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::space::credits;
use crate::state::body::InodeBody;

/// Credits of the last step of a deletion.
const LAST_STEP: u32 = credits::ORPHAN + credits::FREE_INODE;

impl Fs {
    /// Deletes value inodes without references (value.V4). The caller holds no lock and no handle.
    pub(crate) fn reap_values(&self) {
        for inode in self.inodes.values().take() {
            self.iput(&inode);
        }
    }

    /// Deletes an inode that was claimed (`dead` is set, it has no users): frees its blocks,
    /// attributes and number. On a read-only volume, or after an error, it stays an orphan, and the
    /// next opening of the volume deletes it.
    pub(crate) fn delete_inode(&self, inode: &Arc<Inode>) {
        self.space.release_window(inode);
        if self.vol.writable().is_err() {
            return;
        }
        let deleted = self.try_delete(inode);
        if !inode.value {
            self.reap_values();
        }
        match deleted {
            Ok(()) => self.inodes.drop_inode(inode),
            Err(e) => {
                tracing::warn!(
                    ino = inode.ino,
                    "an unlinked inode could not be deleted now: {e}"
                );
                self.vol.report(&e);
            }
        }
    }

    fn try_delete(&self, inode: &Inode) -> Result<()> {
        self.vol.journal.throttle()?;
        let mut body = inode.body.write();
        let body = &mut *body;
        let mut h = self.vol.begin(inode.ino, LAST_STEP)?;
        if !body.is_bare() || self.inodes.holds_values(body) {
            // Most inodes became orphans with their last name; this is for those that never had a
            // name.
            self.inodes.orphan_add(&h, inode, body)?;
            self.inodes.store_inode(&h, inode, body)?;
            // A value has no attributes of its own. A damaged volume where it has could cause an
            // endless recursion.
            if !inode.value && (body.file_acl() != 0 || self.inodes.holds_values(body)) {
                self.inodes.xattr_drop(&mut h, inode, body)?;
            }
            self.data.truncate_body(&mut h, inode, body, 0)?;
            h.restart(LAST_STEP)?;
        }
        self.vol.whole(|| self.free_now(&h, inode, body))?;
        h.stop();
        Ok(())
    }

    /// The last step: removes the inode from the orphans, marks it deleted, and frees its number.
    /// Credits: `credits::ORPHAN + credits::FREE_INODE`.
    pub(crate) fn free_now(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        inode.deleted.store(true, Ordering::Release);
        let is_dir = body.is_dir();
        self.inodes.orphan_del(h, inode, body)?;
        body.set_size(0);
        body.set_links(0);
        body.tally.gone = true;
        body.set_dtime(self.vol.deletion_time());
        self.inodes.store_inode(h, inode, body)?;
        self.space.free_inode(h, inode.ino, is_dir)
    }

    /// Deletes or truncates an inode that an earlier mount left on the orphan list or in the orphan
    /// file. Returns whether it was deleted.
    pub(crate) fn finish_orphan(&self, inode: &Arc<Inode>) -> Result<bool> {
        if inode.unlinked.load(Ordering::Acquire) {
            inode.dead.store(true, Ordering::Release);
            self.try_delete(inode)?;
            self.inodes.drop_inode(inode);
            return Ok(true);
        }
        let mut body = inode.body.write();
        let body = &mut *body;
        let size = body.size();
        let mut h = self.vol.begin(inode.ino, credits::ORPHAN)?;
        if body.is_regular() {
            self.data.truncate_body(&mut h, inode, body, size)?;
            h.restart(credits::ORPHAN)?;
        }
        self.inodes.orphan_del(&h, inode, body)?;
        self.inodes.store_inode(&h, inode, body)?;
        h.stop();
        Ok(false)
    }
}
