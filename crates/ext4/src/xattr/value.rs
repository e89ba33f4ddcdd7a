//! Attribute values in inodes of their own (feature `ea_inode`).

use stetfs_ondisk::ext4::checksum::ext4_crc32c;
use stetfs_ondisk::ext4::inode::InodeFlags;
use stetfs_ondisk::ext4::xattr::VALUE_MAX;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::Ino;

impl Fs {
    /// The value that inode `ino` holds, `size` bytes.
    ///
    /// # Errors
    /// EUCLEAN when the inode is none that holds a value, or holds another one.
    pub(super) fn value_of_inode(&self, ino: Ino, size: u32) -> Result<Vec<u8>> {
        let bad = |detail: String| {
            let detail = format!("inode {ino}: {detail}");
            self.noted(Err(FsError::corrupt("attribute value", 0, detail)))
        };
        if ino < self.geo.first_ino || ino > self.geo.inodes_count {
            return bad("not a number of a value".into());
        }
        let inode = match self.iget_special(ino) {
            Err(FsError::Errno(_)) => return bad("it is free".into()),
            other => other?,
        };
        let body = inode.body.read_nested();
        if !body.flags().contains(InodeFlags::EA_INODE) || !body.is_regular() {
            return bad("it holds no value".into());
        }
        let len = usize::try_from(size).ok().filter(|n| *n <= VALUE_MAX);
        let Some(len) = len.filter(|_| body.size() == u64::from(size)) else {
            return bad(format!("{} bytes where {size} belong", body.size()));
        };
        let mut value = vec![0; len];
        self.read_range(&inode, &body, 0, &mut value)?;
        // `i_atime` holds the value's checksum (`ext4_xattr_inode_get_hash`).
        if self.geo.metadata_csum() {
            let stored = body.atime().sec as u32;
            if ext4_crc32c(self.geo.csum_seed, &value) != stored {
                return bad("checksum does not match".into());
            }
        }
        Ok(value)
    }
}
