//! Reading files.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use stetfs_ondisk::num::to_usize;

impl Fs {
    /// Reads from `offset` into `buf`. Returns the number of bytes, fewer only at the end of the
    /// file.
    ///
    /// # Errors
    /// EISDIR; EINVAL for other files that are not regular; EIO; EUCLEAN.
    pub fn read(&self, f: &OpenRef, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.vol.usable()?;
        let inode = &f.inode;
        let len = {
            let body = inode.body.read();
            if !body.is_regular() {
                return Err(FsError::Errno(if body.is_dir() {
                    libc::EISDIR
                } else {
                    libc::EINVAL
                }));
            }
            let len = to_usize(body.size().saturating_sub(offset).min(buf.len() as u64));
            match buf.get_mut(..len) {
                Some(buf) if len > 0 => self.data.read_range(inode, &body, offset, buf)?,
                _ => return Ok(0),
            }
            len
        };
        if f.flags & libc::O_NOATIME == 0 {
            self.touch_atime(inode);
        }
        Ok(len)
    }
}
