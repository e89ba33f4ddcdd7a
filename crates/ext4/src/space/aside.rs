//! Blocks set aside for content that no file has yet. The allocator keeps them from all files, but
//! no bitmap shows them. If a crash comes before a transaction takes them, they are free space
//! again.

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::bitmap;

use super::allocator::Allocator;
use super::group::Counts;
use super::{AllocFor, BlockRun, credits};
use crate::error::{FsError, Result};
use crate::state::inode::Inode;
use crate::types::BlockNr;

impl Allocator {
    /// Sets up to `want` blocks aside in one run: at `goal` if that is free, else where the inode
    /// would get blocks. The caller has reserved the space, and counts it as consumed. Not for
    /// volumes whose clusters are larger than a block. No handle may be open.
    ///
    /// # Errors
    /// ENOSPC when no block is free.
    pub(crate) fn set_aside(
        &self,
        inode: &Inode,
        goal: Option<BlockNr>,
        want: u32,
    ) -> Result<BlockRun> {
        // One more credit: a group that was never used gets its bitmap.
        let h = self.vol.begin(inode.ino, credits::ALLOC_BLOCKS + 1)?;
        let run = self.alloc_blocks(&h, inode, goal, want, AllocFor::Later)?;
        // The cache must not find their content from a file that is deleted.
        for nr in run.start..run.end() {
            self.vol.cache.forget(nr);
        }
        Ok(run)
    }

    /// Takes a run that was set aside into use. Credits: `credits::ALLOC_BLOCKS` for every group it
    /// touches.
    ///
    /// # Errors
    /// `Corrupt` when a part of it is in use: something else changed the bitmap.
    pub(crate) fn take_set_aside(&self, h: &Handle<'_>, run: BlockRun) -> Result<()> {
        for (group, bit, len) in self.clusters_of(run)? {
            let mut guard = self.groups.lock(group)?;
            let st = &mut *guard;
            let before = Counts::of(st);
            if let Some(pending) = &mut st.pending {
                pending.remove(bit, len);
            }
            let range = bit as usize..(bit + len) as usize;
            let mut is_taken = false;
            self.change_bits(h, group, st, |map, _| {
                is_taken = bitmap::find_set(map, range.clone()).is_some();
                bitmap::set_range(map, range);
            })?;
            self.groups.publish(group, before, st)?;
            if is_taken {
                let detail = format!("{len} blocks that were set aside are in use");
                return Err(FsError::corrupt("block bitmap", run.start, detail));
            }
        }
        Ok(())
    }

    /// Makes a run that was set aside available again.
    pub(crate) fn give_back(&self, run: BlockRun) {
        let given = self.clusters_of(run).and_then(|clusters| {
            let mut clusters = clusters.into_iter();
            clusters.try_for_each(|(group, bit, len)| self.hand_back_blocks(group, bit, len))
        });
        self.told(given);
    }
}
