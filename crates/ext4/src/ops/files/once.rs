//! A check of a file's map before it is read as a whole.

use crate::error::Result;
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use stetfs_ondisk::ext4::features::RoCompat;

impl Fs {
    /// Checks that the map of a file names no block twice, so that the file has no more content
    /// than the volume. Goes through the whole map. On volumes with shared blocks, which are
    /// read-only, a map may name blocks twice, and the check is skipped.
    ///
    /// # Errors
    /// EUCLEAN if it names one twice. Damage that hides a part of the map is reported when that
    /// part is read.
    pub fn check_map(&self, f: &OpenRef) -> Result<()> {
        let body = f.inode.body.read();
        if body.is_inline()
            || !body.is_mapped()
            || self.vol.geo.ro_compat.contains(RoCompat::SHARED_BLOCKS)
        {
            return Ok(());
        }
        let blocks = body.size().div_ceil(u64::from(self.vol.geo.block_size));
        self.data.has_blocks_once(&f.inode, &body, blocks)
    }
}
