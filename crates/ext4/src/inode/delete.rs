//! Deleting inodes, and finishing what an earlier mount left undone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_journal::Handle;

use super::Inode;
use super::body::InodeBody;
use crate::error::Result;
use crate::fs::Fs;
use crate::space::credits;

/// Credits of the last step of a deletion.
const LAST_STEP: u32 = credits::ORPHAN + credits::FREE_INODE;

impl Fs {
    /// Deletes an inode that was claimed (`dead` is set, nobody uses it): its blocks, attributes
    /// and number become free. On a read-only volume, or after an error, it stays an orphan and
    /// goes when the volume is opened next.
    pub(super) fn delete_inode(&self, inode: &Arc<Inode>) {
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
        let mut h = self.vol.journal.begin(LAST_STEP)?;
        if !body.is_bare() || self.inodes.holds_values(body) {
            // It became an orphan with its last name; this is for those that never had one.
            self.inodes.orphan_add(&h, inode, body)?;
            self.inodes.store_inode(&h, inode, body)?;
            // A value has no attributes of its own: a volume that says so could make us go in
            // circles.
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

    /// The last step: off the orphan list, marked deleted, number freed. `credits::ORPHAN +
    /// credits::FREE_INODE`.
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
        body.set_dtime(u32::try_from(self.vol.now().sec).unwrap_or(u32::MAX));
        self.inodes.store_inode(h, inode, body)?;
        self.space.free_inode(h, inode.ino, is_dir)
    }

    /// Deletes or truncates an inode that an earlier mount left on the orphan list or in the orphan
    /// file. Says whether it was deleted.
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
        let mut h = self.vol.journal.begin(credits::ORPHAN)?;
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
