//! Places of a file's blocks for users (FIBMAP, FIEMAP).

use crate::data::Mapping;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::Ino;
use std::sync::atomic::Ordering;

impl Fs {
    /// The place of unit `index` of a regular file on the volume, both counted in units of `unit`
    /// bytes. The result is 0 if it has no place (a hole, unwritten blocks, inline content), is in
    /// several pieces, or does not begin at a multiple of `unit`. On return all earlier writes are
    /// at their home locations, and no log image will overwrite them.
    ///
    /// # Errors
    /// EINVAL for a file that is not regular; EBUSY for a file in an atomic group; failure to write
    /// data back.
    pub fn bmap(&self, ino: Ino, index: u64, unit: u32) -> Result<u64> {
        let inode = self.inodes.iget(ino)?;
        // An exclusive lock: no write may come between the write-back and the answer.
        let body = inode.body.write();
        if !body.is_regular() || unit == 0 {
            return Err(FsError::Errno(libc::EINVAL));
        }
        if body.is_inline() {
            return Ok(0);
        }
        inode.check_alone()?;
        inode.told.store(true, Ordering::Release);
        self.data.settle_content(&inode, &body)?;
        let (unit, block) = (u64::from(unit), u64::from(self.vol.geo.block_size));
        let place = index.checked_mul(unit).map(|at| (at / block, at % block));
        let Some((Ok(lblk), skip)) = place.map(|(lblk, skip)| (u32::try_from(lblk), skip)) else {
            return Ok(0);
        };
        let need = (skip + unit).div_ceil(block);
        let Mapping::Mapped {
            start,
            len,
            unwritten: false,
        } = self.data.map_run(&inode, &body, lblk, need)?
        else {
            return Ok(0);
        };
        let at = start * block + skip;
        let whole = u64::from(len) >= need && at.is_multiple_of(unit);
        Ok(if whole { at / unit } else { 0 })
    }

    /// Called after a write from a page cache: writes the data back at once if a caller was told
    /// the places of the file's blocks. Linux writes its cache of a file back when it begins to
    /// swap to it, after it has asked for the places.
    ///
    /// # Errors
    /// Failure to write data back.
    pub fn settle_blocks(&self, ino: Ino) -> Result<()> {
        let inode = self.inodes.iget(ino)?;
        if !inode.told.load(Ordering::Acquire) {
            return Ok(());
        }
        let body = inode.body.write();
        self.data.settle_content(&inode, &body)
    }
}
