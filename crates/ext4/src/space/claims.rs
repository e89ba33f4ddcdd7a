//! Claims: the blocks and inode numbers that records of files and fast commits name. While recovery
//! applies these, no other file gets the claimed space, nor space that is freed meanwhile, because
//! recovery may have to apply them again from the start.
//!
//! The last statement of fast commits about a block counts, whatever the bitmaps say. Fast commits
//! describe one file after the other, so a block may come to a file before its former owner gives
//! it up. And an earlier replay, by another implementation, may have stopped at any point.

use stetfs_journal::{BlockNr, Handle};
use stetfs_ondisk::ext4::bitmap;
use stetfs_sync::timed::atomic::{AtomicU64, Ordering};

use super::allocator::Allocator;
use super::bitmaps::Bitmap;
use super::group::{Counts, GroupState};
use super::scan::{Overlay, bitmap_word, set_bitmap_word, words};
use super::{AllocFor, BlockRun, credits};
use crate::content;
use crate::error::{FsError, Result};
use crate::inode::{Inode, is_ordinary};
use crate::types::Ino;
use stetfs_ondisk::num::{bounded32, count32};

/// Groups that runs of records or fast commits may touch in all, beyond two for each run and beyond
/// four times the groups of the volume. Files of one transaction do not share blocks, so nothing
/// that a file system wrote comes near this. But where groups are small, a damaged log could name
/// the same blocks again and again without end.
const MORE_GROUPS: u64 = 1 << 17;
/// Pieces of maps that may be examined in all, beyond one for each run. A run is one extent, or
/// becomes one; but a damaged log could make recovery go over a map of single blocks again and
/// again.
const MORE_PIECES: u64 = 1 << 19;

/// Adds `more` to a counter with the limit `most`.
fn count(counted: &AtomicU64, more: u64, most: u64, nr: BlockNr) -> Result<()> {
    if counted.fetch_add(more, Ordering::Relaxed) + more > most {
        let detail = "the log names the same blocks too often (damaged log)";
        return Err(FsError::corrupt("records or fast commits", nr, detail));
    }
    Ok(())
}

impl Allocator {
    /// Stops freed space from being allocated again, from now on.
    pub(crate) fn keep_freed(&self) {
        self.groups.keep_freed.store(true, Ordering::Release);
    }

    /// Makes statements about files win over the bitmaps, from now on: a block belongs to the file
    /// that is said to have it ([`take_claimed`](Self::take_claimed)), and a freed block may be
    /// free already.
    pub(crate) fn trust_files(&self) {
        self.groups.trust_files.store(true, Ordering::Release);
    }

    /// Counts the groups of a run that is claimed, taken or freed while records or fast commits are
    /// applied.
    ///
    /// # Errors
    /// `Corrupt` when there are more than an intact log can name.
    pub(super) fn count_groups(&self, run: BlockRun) -> Result<()> {
        if !self.groups.keep_freed.load(Ordering::Acquire) {
            return Ok(());
        }
        let more = u64::from(run.len / self.vol.geo.blocks_per_group.max(1)).saturating_sub(1);
        let most = MORE_GROUPS + 4 * u64::from(self.groups.count());
        count(&self.groups.more_groups, more, most, run.start)
    }

    /// Counts a piece of a map beyond the first of a run that a record or fast commit names.
    ///
    /// # Errors
    /// `Corrupt` when there are more than an intact log can need.
    pub(crate) fn count_piece(&self, run: BlockNr) -> Result<()> {
        count(&self.groups.more_pieces, 1, MORE_PIECES, run)
    }

    /// The clusters of a run: group, first bit, bits.
    pub(super) fn clusters_of(&self, run: BlockRun) -> Result<Vec<(u32, u32, u32)>> {
        let ratio = u64::from(self.vol.geo.ratio());
        let mut at = self.vol.geo.cluster_start(run.start);
        let mut clusters = Vec::new();
        while at < run.end() {
            let (group, bit) = self.group_of(at)?;
            let end = self.vol.geo.layout.group_blocks(group).end.min(run.end());
            clusters.push((group, bit, bounded32((end - at).div_ceil(ratio))));
            at = end;
        }
        Ok(clusters)
    }

    /// Claims a run for the record that names it.
    ///
    /// # Errors
    /// `Corrupt` if it leaves the volume or touches the file system's own blocks.
    pub(crate) fn claim_blocks(&self, run: BlockRun) -> Result<()> {
        self.check_run(run)?;
        self.count_groups(run)?;
        for (group, bit, len) in self.clusters_of(run)? {
            let h = self.vol.journal.begin(credits::ALLOC_BLOCKS + 1)?;
            let mut guard = self.groups.lock(group)?;
            let st = &mut *guard;
            let before = Counts::of(st);
            let block = self.block_bitmap(&h, group, st)?.block;
            let map = content::page(&block)?;
            let clusters = self.vol.geo.layout.group_clusters(group);
            let pending = Overlay::of(&mut st.pending, clusters);
            for (i, bits) in words(bit, len) {
                pending.insert_in(i, bits & !bitmap_word(&map, i));
            }
            self.groups.publish(group, before, st)?;
        }
        Ok(())
    }

    /// Takes a claimed run into use.
    ///
    /// # Errors
    /// `Corrupt` if a part of it is in use already.
    pub(crate) fn take_claimed(&self, h: &Handle<'_>, inode: &Inode, run: BlockRun) -> Result<()> {
        self.count_groups(run)?;
        let mut at = run.start;
        for (group, bit, len) in self.clusters_of(run)? {
            {
                let mut guard = self.groups.lock(group)?;
                let st = &mut *guard;
                let before = Counts::of(st);
                if let Some(pending) = &mut st.pending {
                    pending.remove(bit, len);
                }
                if self.groups.trust_files.load(Ordering::Acquire) {
                    self.take_trusting(h, group, st, (bit, len))?;
                    self.groups.publish(group, before, st)?;
                    continue;
                }
                self.note_free(group, st, (bit, bit + len));
                self.groups.publish(group, before, st)?;
            }
            let taken = self.alloc_blocks(h, inode, Some(at), len, AllocFor::Data)?;
            if (taken.start, taken.len) != (at, len) {
                return Err(FsError::corrupt(
                    "block bitmap",
                    at,
                    format!("replay.A2: {len} blocks that a file-level record names are not free"),
                ));
            }
            at += u64::from(len);
        }
        Ok(())
    }

    /// Marks clusters as in use. Clusters that are already in use have two owners until one gives
    /// them up.
    fn take_trusting(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
        (bit, len): (u32, u32),
    ) -> Result<()> {
        let clusters = self.vol.geo.layout.group_clusters(group);
        self.change_bits(h, group, st, |map, st| {
            for (i, bits) in words(bit, len) {
                let before = bitmap_word(map, i);
                if bits & before != 0 {
                    Overlay::of(&mut st.shared, clusters).insert_in(i, bits & before);
                }
                if bits & !before != 0 {
                    set_bitmap_word(map, i, before | bits);
                }
            }
        })
    }

    /// Frees clusters, except those that another file also owns. Freed clusters stay pending.
    pub(super) fn free_trusting(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
        (bit, len): (u32, u32),
    ) -> Result<()> {
        let clusters = self.vol.geo.layout.group_clusters(group);
        self.change_bits(h, group, st, |map, st| {
            let pending = Overlay::of(&mut st.pending, clusters);
            for (i, bits) in words(bit, len) {
                let before = bitmap_word(map, i);
                let mut gone = bits & before;
                if let Some(shared) = &mut st.shared {
                    let two = bits & shared.word(i);
                    shared.remove_in(i, two);
                    gone &= !two;
                }
                set_bitmap_word(map, i, before & !gone);
                pending.insert_in(i, gone);
            }
        })
    }

    /// Changes a block bitmap, and counts its free clusters again.
    pub(super) fn change_bits(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
        change: impl FnOnce(&mut [u8], &mut GroupState),
    ) -> Result<()> {
        let Bitmap { block, desc } = self.block_bitmap(h, group, st)?;
        let clusters = self.vol.geo.layout.group_clusters(group) as usize;
        {
            let mut map = h.modify(&block)?;
            change(&mut map, st);
            let free = bitmap::count_clear(&map, clusters);
            st.desc.set_free_clusters(count32(free));
            self.note_block_bitmap(st, &map);
        }
        self.write_desc(h, group, st, desc.as_ref())
    }

    /// Claims an inode number for the record that names it. Returns whether it is free.
    ///
    /// # Errors
    /// `Corrupt` if no file can have this number.
    pub(crate) fn claim_inode(&self, ino: Ino) -> Result<bool> {
        let place = self.vol.geo.layout.locate_inode(ino);
        let Some((group, index)) = place.filter(|_| is_ordinary(&self.vol.geo, ino)) else {
            let detail = format!("a record names inode {ino}, which no file can have");
            return Err(FsError::corrupt("journal", 0, detail));
        };
        let h = self.vol.journal.begin(credits::NEW_INODE)?;
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        let block = self.inode_bitmap(&h, group, st)?.block;
        let free = !bitmap::is_set(&content::page(&block)?, index as usize);
        if free {
            Overlay::of(&mut st.pending_inodes, self.vol.geo.inodes_per_group).insert(index, 1);
        }
        self.groups.publish(group, before, st)?;
        Ok(free)
    }
}
