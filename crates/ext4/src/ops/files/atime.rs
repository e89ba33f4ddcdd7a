//! Updates of access times by readers.

use crate::fs::Fs;
use crate::inode::Inode;
use crate::space::credits;

impl Fs {
    /// Notes a read of the content, if the options ask for it. The caller holds no lock and no
    /// handle. Failures are not reported to the reader.
    pub(crate) fn touch_atime(&self, inode: &Inode) {
        let now = self.vol.now();
        let stays = self.vol.writable().is_err() || self.is_frozen();
        if stays || !self.data.atime_is_old(&inode.body.read(), now) {
            return;
        }
        // A reader does not wait for writers only for this.
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
            .begin(inode.ino, credits::WRITE_INODE)
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
