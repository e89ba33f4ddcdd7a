//! A check that a map names no block twice.

use std::collections::BTreeMap;

use stetfs_journal::BlockNr;

use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};

/// Disjoint runs of blocks, not even adjacent: the first block of each, and the block behind it.
#[derive(Default)]
pub(crate) struct Runs(BTreeMap<BlockNr, BlockNr>);

impl Runs {
    /// Adds blocks that the map of an inode names.
    ///
    /// # Errors
    /// EUCLEAN when the map named one of them before.
    pub(in crate::data) fn add_new(
        &mut self,
        inode: &Inode,
        start: BlockNr,
        len: u64,
    ) -> Result<()> {
        if self.add(start, len) {
            return Ok(());
        }
        let detail = format!("inode {} maps it, or following blocks, twice", inode.ino);
        Err(FsError::corrupt("block map", start, detail))
    }

    /// Adds a run. Returns whether none of its blocks was there.
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

impl DataStore {
    /// Checks that the first `blocks` blocks of a file or directory are all different.
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
                // A read there reports the error; the rest may be intact.
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
