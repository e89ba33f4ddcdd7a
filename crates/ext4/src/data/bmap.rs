//! Telling where a file's blocks lie (FIBMAP), to whoever may go on to use them behind our back:
//! Linux swaps to a file by what it is told here.
//!
//! Blocks of a file that was told of never move while they are its blocks. What is told therefore
//! stays true until the file is truncated or punched, which Linux refuses for a file it swaps to.
//! What remains is that nothing of what was written before may still be on its way to them.

use std::sync::atomic::Ordering;

use super::map::Mapping;
use super::store::DataStore;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::types::Ino;

impl Fs {
    /// Where unit `index` of a regular file lies on the volume, both counted in units of `unit`
    /// bytes; 0 where it lies nowhere (a hole, unwritten blocks, content in the inode itself),
    /// or in pieces, or not at a multiple of `unit`. What was written is home on return, and no
    /// log will write it there again.
    ///
    /// # Errors
    /// EINVAL for what is no regular file; EBUSY for one in an atomic group; what could not be
    /// brought home.
    pub fn bmap(&self, ino: Ino, index: u64, unit: u32) -> Result<u64> {
        let inode = self.inodes.iget(ino)?;
        // Exclusively: nobody writes between what goes home and the answer.
        let body = inode.body.write();
        if !body.is_regular() || unit == 0 {
            return Err(FsError::Errno(libc::EINVAL));
        }
        if body.is_inline() {
            return Ok(0);
        }
        inode.check_alone()?;
        inode.told.store(true, Ordering::Release);
        self.data.bring_home(&inode, &body)?;
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

    /// After a write of what somebody's page cache held: brings it home at once if somebody was
    /// told where the file's blocks lie. Linux writes its cache of a file back as it begins to
    /// swap to it, when the blocks are told already.
    ///
    /// # Errors
    /// What could not be brought home.
    pub fn settle_blocks(&self, ino: Ino) -> Result<()> {
        let inode = self.inodes.iget(ino)?;
        if !inode.told.load(Ordering::Acquire) {
            return Ok(());
        }
        let body = inode.body.write();
        self.data.bring_home(&inode, &body)
    }
}

impl DataStore {
    /// What lies at file block `lblk`, for up to `need` blocks, if they lie there in a row,
    /// whatever says so.
    fn map_run(&self, inode: &Inode, body: &InodeBody, lblk: u32, need: u64) -> Result<Mapping> {
        let need = u32::try_from(need).unwrap_or(u32::MAX);
        let mut all = self.map(inode, body, lblk, need)?;
        while let Mapping::Mapped {
            start,
            len,
            unwritten: false,
        } = all
            && len < need
            && let Some(next) = lblk.checked_add(len)
        {
            let more = match self.map(inode, body, next, need - len)? {
                Mapping::Mapped {
                    start: at,
                    len: more,
                    unwritten: false,
                } if at == start + u64::from(len) => more,
                _ => break,
            };
            all = Mapping::Mapped {
                start,
                len: len + more,
                unwritten: false,
            };
        }
        Ok(all)
    }

    /// Brings home what is newer than its home of a file's content. The caller holds the inode's
    /// lock and no handle.
    fn bring_home(&self, inode: &Inode, body: &InodeBody) -> Result<()> {
        if self.vol.writable().is_err() {
            return Ok(());
        }
        self.flush_files(&[inode])?;
        if self.journals_data(body) {
            // An image in the log would be written there later.
            self.vol.journal.commit_all()?;
            self.vol.journal.checkpoint()?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::BlockDevice;
    use stetfs_testkit::Mkfs;

    use super::*;
    use crate::testing::mkfs;
    use crate::types::{Ctx, DataMode, FallocateMode, FsOptions, ROOT_INO};

    const BLOCK: u64 = 4096;

    #[test]
    fn what_is_told_is_home_and_stays_so() {
        for data in [DataMode::Ordered, DataMode::Journal] {
            let device = mkfs(32, &Mkfs::blocks(4096));
            let opts = FsOptions {
                journal: data.into(),
                commit_secs: 3600,
                ..FsOptions::default()
            };
            let fs = Fs::open(device.clone(), opts).unwrap();
            let (attr, file) = fs
                .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
                .unwrap();
            let lies_there = |block: u64, byte: u8| {
                let mut bytes = vec![0; BLOCK as usize];
                device.read(block * BLOCK, &mut bytes).unwrap();
                bytes.iter().all(|b| *b == byte)
            };
            fs.write(&Ctx::ROOT, &file, 0, &[1; 3 * BLOCK as usize], false)
                .unwrap();
            let blocks = [0, 1, 2].map(|i| fs.bmap(attr.ino, i, 4096).unwrap());
            assert!(blocks.iter().all(|b| *b != 0 && lies_there(*b, 1)));

            // What a page cache held goes home at once, and no log brings back what was there.
            fs.write(&Ctx::ROOT, &file, BLOCK, &[2; BLOCK as usize], false)
                .unwrap();
            fs.settle_blocks(attr.ino).unwrap();
            assert!(lies_there(blocks[1], 2), "{data:?}");
            device
                .write(blocks[1] * BLOCK, &[3; BLOCK as usize])
                .unwrap();
            drop(file);
            fs.unmount().unwrap();
            assert!(lies_there(blocks[1], 3), "{data:?}");
        }
    }

    #[test]
    fn units_are_parts_of_blocks_or_several() {
        let device = mkfs(32, &Mkfs::blocks(1024));
        let fs = Fs::open(device, FsOptions::default()).unwrap();
        let (attr, file) = fs
            .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
            .unwrap();
        fs.write(&Ctx::ROOT, &file, 0, &[1; 64 << 10], false)
            .unwrap();
        let punch = FallocateMode::PunchHole;
        fs.fallocate(&Ctx::ROOT, &file, punch, 9 << 10, 1024)
            .unwrap();
        let at = |index, unit| fs.bmap(attr.ino, index, unit).unwrap();
        let small: Vec<u64> = (0..64).map(|i| at(i, 1024)).collect();
        assert_eq!(small.iter().filter(|b| **b == 0).count(), 1);
        for (i, parts) in (0..).zip(small.chunks(4)) {
            let row = parts.iter().zip(parts[0]..).all(|(b, next)| *b == next);
            let whole = row && parts[0] != 0 && parts[0].is_multiple_of(4);
            assert_eq!(at(i, 4096), if whole { parts[0] / 4 } else { 0 });
        }
        for i in 0..128 {
            let block = small[i as usize / 2];
            let part = if block == 0 { 0 } else { block * 2 + i % 2 };
            assert_eq!(at(i, 512), part);
        }
        // Behind the end, and behind what a file can have.
        assert_eq!(
            [at(64, 1024), at(u64::MAX, 4096), at(1 << 40, 4096)],
            [0; 3]
        );
        assert!(fs.bmap(attr.ino, 0, 0).is_err());
        assert!(fs.bmap(ROOT_INO, 0, 1024).is_err());
    }
}
