//! Blocks and inode numbers that file-level records name: nobody else gets them while the records are applied, nor what is
//! freed meanwhile, for the records may have to be applied again from the start.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::bitmap;

use super::group::Counts;
use super::scan::Overlay;
use super::{AllocFor, BlockRun, credits};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, is_ordinary};
use crate::types::Ino;

impl Fs {
    /// From now on nothing that is freed is handed out again.
    pub(crate) fn keep_freed(&self) {
        self.groups.keep_freed.store(true, Ordering::Release);
    }

    /// Keeps a run for the record that names it.
    ///
    /// # Errors
    /// `Corrupt` if it leaves the volume or touches what is not for files.
    pub(crate) fn claim_blocks(&self, run: BlockRun) -> Result<()> {
        self.check_run(run)?;
        let mut at = run.start;
        while at < run.end() {
            let (group, bit) = self.group_of(at)?;
            let len = (self.geo.layout.group_blocks(group).end.min(run.end()) - at) as u32;
            let h = self.journal.begin(credits::ALLOC_BLOCKS + 1)?;
            let mut guard = self.groups.lock(group)?;
            let st = &mut *guard;
            let before = Counts::of(st);
            let block = self.block_bitmap(&h, group, st)?;
            if let Some(map) = block.page() {
                let clusters = self.geo.layout.group_clusters(group);
                let pending = st
                    .pending
                    .get_or_insert_with(|| Box::new(Overlay::new(clusters)));
                for bit in (bit..bit + len).filter(|bit| !bitmap::is_set(&map, *bit as usize)) {
                    pending.insert(bit, 1);
                }
            }
            self.groups.publish(group, before, st);
            at += u64::from(len);
        }
        Ok(())
    }

    /// Takes a claimed run into use.
    ///
    /// # Errors
    /// `Corrupt` if some of it is in use already.
    pub(crate) fn take_claimed(&self, h: &Handle<'_>, inode: &Inode, run: BlockRun) -> Result<()> {
        let mut at = run.start;
        while at < run.end() {
            let (group, bit) = self.group_of(at)?;
            let len = (self.geo.layout.group_blocks(group).end.min(run.end()) - at) as u32;
            {
                let mut guard = self.groups.lock(group)?;
                let st = &mut *guard;
                let before = Counts::of(st);
                if let Some(pending) = &mut st.pending {
                    pending.remove(bit, len);
                }
                self.note_free(group, st, (bit, bit + len));
                self.groups.publish(group, before, st);
            }
            let taken = self.alloc_blocks(h, inode, Some(at), len, AllocFor::Data)?;
            if (taken.start, taken.len) != (at, len) {
                let detail = format!("{len} blocks that a file-level record names are not free");
                return Err(FsError::corrupt("block bitmap", at, detail));
            }
            at += u64::from(len);
        }
        Ok(())
    }

    /// Keeps an inode number for the record that names it. Says whether it is free.
    ///
    /// # Errors
    /// `Corrupt` if no file can have it.
    pub(crate) fn claim_inode(&self, ino: Ino) -> Result<bool> {
        let place = self.geo.layout.locate_inode(ino);
        let Some((group, index)) = place.filter(|_| is_ordinary(&self.geo, ino)) else {
            let detail = format!("a file-level record of inode {ino}");
            return Err(FsError::corrupt("journal", 0, detail));
        };
        let h = self.journal.begin(credits::NEW_INODE)?;
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        let block = self.inode_bitmap(&h, group, st)?;
        let free = block
            .page()
            .is_some_and(|map| !bitmap::is_set(&map, index as usize));
        if free {
            let per_group = self.geo.inodes_per_group;
            st.pending_inodes
                .get_or_insert_with(|| Box::new(Overlay::new(per_group)))
                .insert(index, 1);
        }
        self.groups.publish(group, before, st);
        Ok(free)
    }
}
