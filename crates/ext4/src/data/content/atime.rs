//! Access times: `lazytime` and `relatime`.

use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::time::Timestamp;

use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::types::Atime;

const DAY: i64 = 24 * 3600;

impl DataStore {
    /// Puts the inode into the journal if its newest access time is not there yet. The caller holds
    /// no lock and no handle.
    ///
    /// # Errors
    /// Errors of the device or the journal.
    pub(crate) fn write_lazy_time(&self, inode: &Inode) -> Result<()> {
        if !inode.lazy.load(Ordering::Acquire) || inode.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        self.vol.journal.throttle()?;
        let mut body = inode.body.write();
        if inode.dead.load(Ordering::Acquire) {
            return Ok(());
        }
        let h = self.vol.begin(inode.ino, credits::WRITE_INODE)?;
        self.inodes.write_inode(&h, inode, &mut body)
    }

    /// [`write_lazy_time`](Self::write_lazy_time) of all inodes.
    ///
    /// # Errors
    /// Errors of the device or the journal.
    pub(crate) fn write_lazy_times(&self) -> Result<()> {
        if !self.inodes.any_lazy() || self.vol.writable().is_err() {
            return Ok(());
        }
        self.inodes
            .all()
            .iter()
            .try_for_each(|inode| self.write_lazy_time(inode))
    }

    pub(crate) fn atime_is_old(&self, body: &InodeBody, now: Timestamp) -> bool {
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
