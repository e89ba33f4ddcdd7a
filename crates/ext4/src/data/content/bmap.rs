//! The places of a file's blocks for FIBMAP. The caller may use the blocks directly afterwards:
//! Linux swaps to a file at these places.
//!
//! Blocks of such a file never move while they belong to it. So the answer stays right until the
//! file is truncated or punched, which Linux refuses for a swap file. What remains: no earlier
//! write may still be on its way to these blocks.

use crate::data::maps::map::Mapping;
use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};

impl DataStore {
    /// The mapping of file block `lblk` and its successors, up to `need` blocks, as far as they are
    /// consecutive on the volume, across extents.
    pub(crate) fn map_run(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
        need: u64,
    ) -> Result<Mapping> {
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

    /// Writes back all content of a file that is newer than its home location. The caller holds the
    /// inode's lock and no handle.
    pub(crate) fn settle_content(&self, inode: &Inode, body: &InodeBody) -> Result<()> {
        if self.vol.writable().is_err() {
            return Ok(());
        }
        self.write_back_files(&[inode])?;
        if self.journals_data(body) {
            // A checkpoint would write an image in the log there later.
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

    use crate::fs::Fs;
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

            // Dirty pages are written back at once, and no log image overwrites them later.
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
        // Behind the end of the file, and behind the largest file.
        assert_eq!(
            [at(64, 1024), at(u64::MAX, 4096), at(1 << 40, 4096)],
            [0; 3]
        );
        assert!(fs.bmap(attr.ino, 0, 0).is_err());
        assert!(fs.bmap(ROOT_INO, 0, 1024).is_err());
    }
}
