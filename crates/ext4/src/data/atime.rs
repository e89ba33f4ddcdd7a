//! Access times.

use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::time::Timestamp;

use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::types::Atime;

const DAY: i64 = 24 * 3600;

impl Fs {
    /// Notes that the content was read, if the options ask for that. No lock and no handle may be
    /// held. Best effort: who reads learns of no error here.
    pub(crate) fn touch_atime(&self, inode: &Inode) {
        let now = self.now();
        if !self.atime_is_old(&inode.body.read(), now) || self.writable().is_err() {
            return;
        }
        // A reader does not wait for writers just for this.
        let Some(mut body) = inode.body.try_write() else {
            return;
        };
        if !self.atime_is_old(&body, now) {
            return;
        }
        let result = self
            .journal
            .begin(credits::WRITE_INODE)
            .map_err(Into::into)
            .and_then(|h| {
                body.set_atime(now);
                self.write_inode(&h, inode, &mut body)
            });
        if let Err(e) = result {
            tracing::debug!(ino = inode.ino, "no access time: {e}");
        }
    }

    fn atime_is_old(&self, body: &InodeBody, now: Timestamp) -> bool {
        if self.opts.read_only
            || body.flags().contains(InodeFlags::NOATIME)
            || (body.is_dir() && self.opts.nodiratime)
        {
            return false;
        }
        let atime = body.atime();
        match self.opts.atime {
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
