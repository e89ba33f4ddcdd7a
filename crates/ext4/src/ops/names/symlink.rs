//! Symbolic links.

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::Ino;

impl Fs {
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if it is not a symbolic link; EUCLEAN if the target is damaged.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inodes.iget(ino)?;
        let target = {
            let body = inode.body.read();
            if !body.is_symlink() {
                return Err(FsError::Errno(libc::EINVAL));
            }
            body.check_key()?;
            match body.inline_symlink() {
                Some(target) => target.to_vec(),
                None => self.data.read_long_link(&inode, &body)?,
            }
        };
        self.touch_atime(&inode);
        Ok(target)
    }
}
