//! Access times.

use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::time::Timestamp;

use super::store::DataStore;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::types::Atime;

const DAY: i64 = 24 * 3600;

impl Fs {
    /// Notes that the content was read, if the options ask for that. No lock and no handle may be
    /// held. Best effort: who reads learns of no error here.
    pub(crate) fn touch_atime(&self, inode: &Inode) {
        let now = self.vol.now();
        let stays = self.vol.writable().is_err() || self.is_frozen();
        if stays || !self.data.atime_is_old(&inode.body.read(), now) {
            return;
        }
        // A reader does not wait for writers just for this.
        let Some(mut body) = inode.body.try_write() else {
            return;
        };
        if !self.data.atime_is_old(&body, now) {
            return;
        }
        if self.vol.opts.lazytime && self.inodes.put_off(inode) {
            body.set_atime(now);
            return;
        }
        let result = self
            .vol
            .journal
            .begin(credits::WRITE_INODE)
            .map_err(Into::into)
            .and_then(|h| {
                body.set_atime(now);
                self.inodes.write_inode(&h, inode, &mut body)
            });
        if let Err(e) = result {
            tracing::debug!(ino = inode.ino, "no access time: {e}");
        }
    }
}

impl DataStore {
    /// Puts the inode into the journal if its access time is not there yet. No lock and no handle
    /// may be held.
    ///
    /// # Errors
    /// The device or the journal failed.
    pub(crate) fn write_lazy_time(&self, inode: &Inode) -> Result<()> {
        if !inode.lazy.load(Ordering::Acquire) || inode.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        self.vol.journal.throttle()?;
        let mut body = inode.body.write();
        if inode.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        let h = self.vol.journal.begin(credits::WRITE_INODE)?;
        self.inodes.write_inode(&h, inode, &mut body)
    }

    /// [`write_lazy_time`](Self::write_lazy_time) of all inodes.
    ///
    /// # Errors
    /// The device or the journal failed.
    pub(crate) fn write_lazy_times(&self) -> Result<()> {
        if !self.inodes.any_lazy() || self.vol.writable().is_err() {
            return Ok(());
        }
        self.inodes
            .all()
            .iter()
            .try_for_each(|inode| self.write_lazy_time(inode))
    }

    fn atime_is_old(&self, body: &InodeBody, now: Timestamp) -> bool {
        if self.vol.opts.read_only
            || body.flags().contains(InodeFlags::NOATIME)
            || (body.is_dir() && self.vol.opts.nodiratime)
        {
            return false;
        }
        let atime = body.atime();
        match self.vol.opts.atime {
            Atime::Noatime => false,
            Atime::Strict => atime != now,
            Atime::Relatime => {
                atime <= body.mtime()
                    || atime <= body.ctime()
                    || now.sec.saturating_sub(atime.sec) >= DAY
            }
        }
    }
}
