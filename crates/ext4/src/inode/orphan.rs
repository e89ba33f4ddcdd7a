//! Orphans: inodes that the next opening of the volume deletes or truncates if this mount does not
//! get to it ("Orphan inodes" and "Orphan file" in the ext4 documentation).
//!
//! With the orphan file, one of its slots names the inode. Without it, or when it is full, the
//! orphan list does: it begins in the superblock and continues through `i_dtime`. In memory the
//! list is doubly linked. While an inode is on the list, its `i_dtime` on disk belongs to the list
//! and changes only under the list's lock.

use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::orphan_file;

use super::Inode;
use super::orphans::not_listed;
use super::store::InodeStore;
use crate::error::{FsError, Result};
use crate::state::body::InodeBody;
use crate::state::orphan_place::OrphanPlace;
use crate::types::Ino;
use stetfs_ondisk::num::count32;

impl InodeStore {
    /// Remembers on the volume that the inode is to be deleted (no links) or truncated to its size
    /// (links). The caller holds the inode's lock, and writes the inode in the same transaction.
    /// Credits: `credits::ORPHAN`.
    pub(crate) fn orphan_add(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        if body.orphan.is_some() || self.vol.opts.canary.skip_orphan {
            return Ok(());
        }
        let place = match self.orphan_file_add(h, inode.ino)? {
            Some(place) => place,
            None => self.orphan_list_add(h, inode.ino)?,
        };
        body.orphan = Some(place);
        inode.orphaned.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes what [`orphan_add`](Self::orphan_add) remembered. The caller writes the inode.
    /// Credits: `credits::ORPHAN`.
    pub(crate) fn orphan_del(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        match body.orphan {
            None => return Ok(()),
            Some(OrphanPlace::File { block, slot }) => {
                self.orphan_file_del(h, inode.ino, block, slot)?
            }
            Some(OrphanPlace::List) => self.orphan_list_del(h, inode.ino)?,
        }
        body.orphan = None;
        body.set_dtime(0);
        inode.orphaned.store(false, Ordering::Release);
        Ok(())
    }

    fn orphan_list_add(&self, h: &Handle<'_>, ino: Ino) -> Result<OrphanPlace> {
        let mut state = self.orphans.lock();
        let old = state.head;
        self.vol.change_super(h, |sb| sb.last_orphan.set(ino))?;
        state.head = ino;
        state.links.insert(ino, (0, old));
        if let Some(links) = state.links.get_mut(&old) {
            links.0 = ino;
        }
        Ok(OrphanPlace::List)
    }

    fn orphan_list_del(&self, h: &Handle<'_>, ino: Ino) -> Result<()> {
        let mut state = self.orphans.lock();
        let (prev, next) = state
            .links
            .get(&ino)
            .copied()
            .ok_or_else(|| not_listed(ino))?;
        if prev == 0 {
            self.vol.change_super(h, |sb| sb.last_orphan.set(next))?;
            state.head = next;
        } else {
            self.patch_dtime(h, prev, next)?;
        }
        state.links.remove(&ino);
        if let Some(links) = state.links.get_mut(&prev) {
            links.1 = next;
        }
        if let Some(links) = state.links.get_mut(&next) {
            links.0 = prev;
        }
        Ok(())
    }

    /// Puts an inode into the orphan file; `None` when there is no file, or no room in it.
    fn orphan_file_add(&self, h: &Handle<'_>, ino: Ino) -> Result<Option<OrphanPlace>> {
        let Some(file) = &self.orphans.file else {
            return Ok(None);
        };
        let count = self.orphans.free.len();
        // Threads start at different blocks, so that their transactions share as few as possible.
        let start = if count == 0 {
            0
        } else {
            thread_number() % count
        };
        for i in 0..count {
            let index = (start + i) % count;
            let (free, nr) = self.orphans.block(file, index)?;
            let mut free = free.lock();
            if *free == 0 {
                continue;
            }
            let block = self.vol.cache.read(nr)?;
            let mut page = h.modify(&block)?;
            let Some(slot) = orphan_file::find_free(&page, 0) else {
                return Err(FsError::corrupt(
                    "orphan file",
                    nr,
                    "fewer free slots than when it was read",
                ));
            };
            orphan_file::set(&mut page, slot, ino)?;
            orphan_file::update_checksum(file.seed, nr, &mut page)?;
            drop(page);
            *free -= 1;
            return Ok(Some(OrphanPlace::File {
                block: count32(index),
                slot: count32(slot),
            }));
        }
        Ok(None)
    }

    fn orphan_file_del(&self, h: &Handle<'_>, ino: Ino, block: u32, slot: u32) -> Result<()> {
        let file = self.orphans.file.as_ref();
        let file = file.ok_or_else(|| {
            FsError::corrupt(
                "orphan file",
                0,
                format!("inode {ino} is recorded in it, but the volume has none"),
            )
        })?;
        let (free, nr) = self.orphans.block(file, block as usize)?;
        let mut free = free.lock();
        let cached = self.vol.cache.read(nr)?;
        let mut page = h.modify(&cached)?;
        if orphan_file::get(&page, slot as usize) != Some(ino) {
            let detail = format!("slot {slot} does not hold inode {ino}");
            return Err(FsError::corrupt("orphan file", nr, detail));
        }
        orphan_file::set(&mut page, slot as usize, 0)?;
        orphan_file::update_checksum(file.seed, nr, &mut page)?;
        drop(page);
        *free += 1;
        Ok(())
    }
}

/// A small number that is different for each thread.
fn thread_number() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|n| *n)
}
