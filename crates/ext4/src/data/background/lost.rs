//! Lost blocks: new blocks whose data could not be written. They hold content of deleted files, so
//! they must not be read: they become unwritten again, or holes in files without unwritten blocks.
//! (In the kernel extents are unwritten until their data is there.)

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stetfs_journal::Block;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::data::content::whole::Steps;
use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;

/// Runs of consecutive blocks among these, which ascend.
fn runs(blocks: impl Iterator<Item = u32>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for lblk in blocks.map(u64::from) {
        match runs.last_mut() {
            Some(last) if last.end == lblk => last.end += 1,
            _ => runs.push(lblk..lblk + 1),
        }
    }
    runs
}

impl DataStore {
    /// Hides the lost blocks of all files, so that they cannot be read. A file that another thread
    /// has locked is done later, because that thread may wait for the write-back of the caller.
    pub(crate) fn hide_lost(&self) {
        let files = std::mem::take(&mut *self.state.dirty.lost.lock());
        for (ino, failed) in files {
            let Some(inode) = self.inodes.find(ino) else {
                continue;
            };
            let Some(mut body) = inode.body.try_write() else {
                self.state.dirty.lost.lock().insert(ino, failed);
                continue;
            };
            let mut lost = inode.dirty.take_lost();
            if let Err(e) = self.hide(&inode, &mut body, &mut lost) {
                if !failed {
                    tracing::warn!("inode {ino}: blocks without their data stay readable: {e}");
                }
                if self.vol.opts.canary.forget_lost {
                    continue;
                }
                // The blocks stay lost until they are hidden.
                inode.dirty.lose_again(lost);
                self.state.dirty.lost.lock().insert(ino, true);
            }
        }
    }

    /// Hides these blocks of a file, and removes hidden blocks from `lost`.
    fn hide(
        &self,
        inode: &Inode,
        body: &mut InodeBody,
        lost: &mut BTreeMap<u32, Arc<Block>>,
    ) -> Result<()> {
        if lost.is_empty() || !body.is_mapped() {
            return Ok(());
        }
        let need = self.map_credits(body) + 4 * credits::WRITE_INODE;
        let mut h = self.vol.begin(inode.ino, need)?;
        let extents = body.flags().contains(InodeFlags::EXTENTS);
        let bits = self.vol.geo.block_bits;
        let hidden = runs(lost.keys().copied()).into_iter().try_for_each(|run| {
            let bytes = run.start << bits..run.end << bits;
            match extents {
                true => self.zero_range(&mut h, inode, body, &bytes, Steps::Parts)?,
                false => self.punch(&mut h, inode, body, &bytes, Steps::Parts)?,
            }
            lost.retain(|lblk, _| !run.contains(&u64::from(*lblk)));
            Ok(())
        });
        // Also after an error: the tree contains what was done so far.
        self.more_credits(&mut h, inode, body, credits::WRITE_INODE)?;
        self.write_inode_step(&h, inode, body)?;
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_a_run() {
        assert_eq!(runs(std::iter::empty()), []);
        let blocks = [1, 2, 3, 7, u32::MAX - 1, u32::MAX].into_iter();
        let last = u64::from(u32::MAX);
        assert_eq!(runs(blocks), [1..4, 7..8, last - 1..last + 1]);
    }
}
