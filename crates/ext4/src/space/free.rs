//! Freeing of blocks: bits are cleared at once, and blocks are used again after the commit.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::bitmap;

use super::allocator::Allocator;
use super::bitmaps::Bitmap;
use super::group::HeldBack;
use super::group::{Counts, GroupState};
use super::scan::{FreeMap, Overlay};
use super::{BlockRun, Freed};
use crate::error::{FsError, Result};
use crate::types::BlockNr;
use stetfs_ondisk::num::bounded32;

impl Allocator {
    /// Frees a run of whole clusters: their bits are cleared in `h`, and they can be allocated
    /// again once the transaction is valid. Credits: `credits::FREE_BLOCKS` for every group it
    /// touches. The caller has dropped the file's dirty data in the run.
    ///
    /// # Errors
    /// `Corrupt` when a block is free already or belongs to the file system itself. The part of the
    /// run in that group stays allocated.
    pub(crate) fn free_blocks(&self, h: &Handle<'_>, run: BlockRun, kind: Freed) -> Result<()> {
        self.check_run(run)?;
        if self.vol.geo.cluster_start(run.start) != run.start
            || !run.len.is_multiple_of(self.vol.geo.ratio())
        {
            let detail = format!(
                "{} blocks from there on are not aligned to clusters",
                run.len
            );
            return Err(FsError::corrupt("block number", run.start, detail));
        }
        self.count_groups(run)?;
        let mut at = run.start;
        while at < run.end() {
            let (group, bit) = self.group_of(at)?;
            let len = bounded32(self.vol.geo.layout.group_blocks(group).end.min(run.end()) - at);
            self.free_in_group(h, group, bit, len / self.vol.geo.ratio())?;
            if kind == Freed::Journaled && !self.vol.opts.canary.free_unrevoked {
                h.revoke(at, u64::from(len))?;
            }
            at += u64::from(len);
        }
        Ok(())
    }

    /// Checks that a run of a file lies on the volume and touches none of the file system's own
    /// blocks.
    ///
    /// # Errors
    /// `Corrupt` if not.
    pub(crate) fn check_run(&self, run: BlockRun) -> Result<()> {
        let valid = self.vol.geo.layout.valid_blocks();
        if run.len == 0 || !valid.contains(&run.start) || run.end() > valid.end {
            return Err(FsError::corrupt(
                "block number",
                run.start,
                format!("{} blocks extend beyond the volume", run.len),
            ));
        }
        if self.groups.zones.touches(run.start, u64::from(run.len)) {
            let detail = format!("{} blocks of a file overlap the file system's own", run.len);
            return Err(FsError::corrupt("block number", run.start, detail));
        }
        Ok(())
    }

    /// Frees the cluster around a block, as [`free_blocks`](Self::free_blocks) does.
    pub(crate) fn free_cluster(&self, h: &Handle<'_>, nr: BlockNr, how: Freed) -> Result<()> {
        let run = BlockRun {
            start: self.vol.geo.cluster_start(nr),
            len: self.vol.geo.ratio(),
        };
        self.free_blocks(h, run, how)
    }

    fn free_in_group(&self, h: &Handle<'_>, group: u32, bit: u32, len: u32) -> Result<()> {
        let range = bit as usize..(bit + len) as usize;
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        if self.groups.trust_files.load(Ordering::Acquire) {
            self.free_trusting(h, group, st, (bit, len))?;
            self.groups.publish(group, before, st)?;
            return Ok(());
        }
        let Bitmap { block, desc } = self.block_bitmap(h, group, st)?;
        {
            let mut map = h.modify(&block)?;
            if let Some(free) = bitmap::find_clear(&map, range.clone()) {
                let nr: BlockNr = self.vol.geo.layout.group_first_block(group)
                    + free as u64 * u64::from(self.vol.geo.ratio());
                return Err(FsError::corrupt(
                    "block bitmap",
                    nr,
                    "a block to be freed is free already",
                ));
            }
            bitmap::clear_range(&mut map, range);
            st.desc
                .set_free_clusters(st.desc.free_clusters().saturating_add(len));
            self.note_block_bitmap(st, &map);
        }
        let clusters = self.vol.geo.layout.group_clusters(group);
        if self.vol.opts.canary.reuse_early {
            self.note_free(group, st, (bit, bit + len));
        } else {
            Overlay::of(&mut st.pending, clusters).insert(bit, len);
        }
        self.write_desc(h, group, st, desc.as_ref())?;
        self.groups.publish(group, before, st)?;
        drop(guard);
        let fs = self.me.clone();
        h.after_commit(Box::new(move || {
            if let Some(fs) = fs.upgrade() {
                fs.told(fs.blocks_are_free(group, bit, len));
            }
        }));
        Ok(())
    }

    /// Makes blocks available that a transaction freed. The transaction is valid (space.S2).
    fn blocks_are_free(&self, group: u32, bit: u32, len: u32) -> Result<()> {
        if self.groups.keep_freed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.discard_freed(group, bit, len);
        match self.hold_back(HeldBack::Blocks { group, bit, len }) {
            true => Ok(()),
            false => self.hand_back_blocks(group, bit, len),
        }
    }

    /// Makes these blocks available from here on.
    pub(super) fn hand_back_blocks(&self, group: u32, bit: u32, len: u32) -> Result<()> {
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        if let Some(pending) = &mut st.pending {
            pending.remove(bit, len);
            if pending.count() == 0 {
                st.pending = None;
            }
        }
        self.note_free(group, st, (bit, bit.saturating_add(len)));
        self.groups.publish(group, before, st)
    }

    /// Reports an error where no caller waits for the result.
    pub(super) fn told(&self, result: Result<()>) {
        if let Err(e) = result {
            self.vol.report(&e);
        }
    }

    /// Updates the search hints when clusters become available (space.S4).
    pub(super) fn note_free(&self, group: u32, st: &mut GroupState, (start, end): (u32, u32)) {
        st.first_free = st.first_free.min(start);
        // The bitmap was changed just before. If it left memory since, the longest run is unknown.
        let block = self.vol.cache.lookup(st.desc.block_bitmap());
        let run = block.as_ref().and_then(|block| {
            let clusters = self.vol.geo.layout.group_clusters(group);
            let map = block.peek()?;
            Some(FreeMap::new(&map, st.pending.as_deref(), clusters).run_around(start, end))
        });
        st.longest = st.longest.max(run.unwrap_or(u32::MAX));
    }
}
