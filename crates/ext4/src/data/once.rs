//! Maps that name each block once.

use std::collections::BTreeMap;

use stetfs_journal::BlockNr;
use stetfs_ondisk::ext4::features::RoCompat;

use super::store::DataStore;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OpenRef};

/// Runs of blocks by their first block, with the block behind each. No two of them meet.
#[derive(Default)]
pub(super) struct Runs(BTreeMap<BlockNr, BlockNr>);

impl Runs {
    /// Takes in blocks that the map of an inode names.
    ///
    /// # Errors
    /// EUCLEAN when it named one of them before.
    pub(super) fn add_new(&mut self, inode: &Inode, start: BlockNr, len: u64) -> Result<()> {
        if self.add(start, len) {
            return Ok(());
        }
        let detail = format!("inode {} has it, or blocks behind it, twice", inode.ino);
        Err(FsError::corrupt("block map", start, detail))
    }

    /// Takes another in, and says whether none of its blocks was there.
    fn add(&mut self, start: BlockNr, len: u64) -> bool {
        let (mut start, mut end) = (start, start.saturating_add(len));
        if let Some((first, behind)) = self.0.range(..end).next_back() {
            if *behind > start {
                return false;
            }
            if *behind == start {
                start = *first;
            }
        }
        if let Some(behind) = self.0.remove(&end) {
            end = behind;
        }
        self.0.insert(start, end);
        true
    }
}

impl Fs {
    /// Sees to it that the map of a file names no block twice, so that there is no more to be read
    /// than the volume has. Goes through all of the map. On volumes with shared blocks, which
    /// are read-only, it may.
    ///
    /// # Errors
    /// EUCLEAN: it does. Damage that hides a part of the map is told when that part is read.
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

impl DataStore {
    /// Sees to it that the first `blocks` blocks of a file or directory are different ones.
    pub(crate) fn has_blocks_once(
        &self,
        inode: &Inode,
        body: &InodeBody,
        blocks: u64,
    ) -> Result<()> {
        let (mut runs, mut at) = (Runs::default(), 0);
        loop {
            let e = match self.next_extent(inode, body, at) {
                Ok(Some(e)) if u64::from(e.block) < blocks => e,
                Ok(_) => return Ok(()),
                // Who reads there is told; the rest may be whole.
                Err(_) => return Ok(()),
            };
            self.vol
                .noted(runs.add_new(inode, e.start, u64::from(e.len)))?;
            at = e.logical_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_those_of_a_vector_of_bools(
            all in proptest::collection::vec((0..100u64, 1..8u64), 0..40),
        ) {
            let (mut runs, mut blocks) = (Runs::default(), [false; 108]);
            for (start, len) in all {
                let place = &mut blocks[start as usize..(start + len) as usize];
                let free = place.iter().all(|taken| !taken);
                prop_assert_eq!(runs.add(start, len), free);
                if free {
                    place.fill(true);
                }
                let edges = (0..108).filter(|i| blocks[*i] && (*i == 0 || !blocks[*i - 1]));
                prop_assert_eq!(runs.0.len(), edges.count());
            }
        }
    }
}
