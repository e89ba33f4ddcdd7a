//! Orphans: inodes to be deleted or truncated when the volume is opened next, should that not
//! happen now ("Orphan inodes" and "Orphan file" in the ext4 documentation).
//!
//! With the orphan file a slot of it names the inode; without, or when it is full, a list does that
//! begins in the superblock and goes on through `i_dtime`. The list is linked both ways in memory;
//! while an inode is on it, its `i_dtime` on disk belongs to the list and is changed under the
//! list's lock only.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::orphan_file;
use stetfs_sync::{Mutex, MutexGuard, Rank};

use super::Inode;
use super::body::InodeBody;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{BlockNr, Ino};
use crate::volume::OrphansFinished;

/// Where an orphan is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// On the list.
    List,
    /// In the orphan file.
    File {
        /// Index of the block in the file.
        block: u32,
        /// Slot in the block.
        slot: u32,
    },
}

/// The orphan file's blocks, all read and checked when the volume is opened.
pub(crate) struct OrphanFile {
    /// Blocks of the file in order.
    pub(crate) blocks: Vec<BlockNr>,
    /// Seed of their checksums; `None` on volumes without.
    pub(crate) seed: Option<u32>,
}

/// Both mechanisms in memory.
pub(crate) struct Orphans {
    state: Mutex<State>,
    file: Option<OrphanFile>,
    /// Free slots of each block of the file. Who changes a block holds its lock.
    free: Vec<Mutex<u32>>,
    /// What became of those that were there when the volume was opened.
    pub(crate) finished: parking_lot::Mutex<OrphansFinished>,
}

/// The list.
pub(crate) struct State {
    head: Ino,
    /// Neighbours of each inode on the list: towards the head, away from it; 0 at the ends.
    links: HashMap<Ino, (Ino, Ino)>,
}

fn not_listed(ino: Ino) -> FsError {
    FsError::corrupt("orphan list", 0, format!("inode {ino} is not on it"))
}

impl State {
    /// What `i_dtime` of an inode on the list holds.
    ///
    /// # Errors
    /// It is not on the list: 0 would cut off those behind it.
    pub(super) fn next_of(&self, ino: Ino) -> Result<u32> {
        let links = self.links.get(&ino).ok_or_else(|| not_listed(ino))?;
        Ok(links.1)
    }
}

impl Orphans {
    /// With the list as found on the volume (head first), and the file with its free slots per
    /// block.
    pub(crate) fn new(list: &[Ino], file: Option<(OrphanFile, Vec<u32>)>) -> Orphans {
        let mut links = HashMap::new();
        for (i, ino) in list.iter().enumerate() {
            let prev = i
                .checked_sub(1)
                .and_then(|p| list.get(p))
                .copied()
                .unwrap_or(0);
            let next = list.get(i + 1).copied().unwrap_or(0);
            links.insert(*ino, (prev, next));
        }
        let (file, free) = file.map_or((None, Vec::new()), |(f, free)| (Some(f), free));
        let head = list.first().copied().unwrap_or(0);
        Orphans {
            state: Mutex::new(Rank::Orphan, State { head, links }),
            file,
            free: free
                .into_iter()
                .map(|n| Mutex::new(Rank::Orphan, n))
                .collect(),
            finished: parking_lot::Mutex::default(),
        }
    }

    /// Locks the list.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A block of the file: its free slots, and where it lies.
    fn block(&self, file: &OrphanFile, index: usize) -> Result<(&Mutex<u32>, BlockNr)> {
        let block = self.free.get(index).zip(file.blocks.get(index).copied());
        block.ok_or_else(|| FsError::corrupt("orphan file", 0, format!("it has no block {index}")))
    }

    /// Whether the volume has an orphan file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the orphan file holds nothing.
    pub(crate) fn file_is_empty(&self, block_size: u32) -> bool {
        let all = orphan_file::slots_per_block(block_size as usize) as u32;
        self.free.iter().all(|free| *free.lock() == all)
    }
}

impl Fs {
    /// Remembers on the volume that the inode is to be deleted (no links) or truncated to its size
    /// (links). The caller holds its lock, and writes the inode in the same transaction.
    /// `credits::ORPHAN`.
    pub(crate) fn orphan_add(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        if body.orphan.is_some() || self.opts.canary.skip_orphan {
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

    /// Forgets what [`orphan_add`](Self::orphan_add) remembered. The caller writes the inode.
    /// `credits::ORPHAN`.
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
        self.change_super(h, |sb| sb.last_orphan.set(ino))?;
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
            self.change_super(h, |sb| sb.last_orphan.set(next))?;
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

    /// `None` when there is no file, or no room in it.
    fn orphan_file_add(&self, h: &Handle<'_>, ino: Ino) -> Result<Option<OrphanPlace>> {
        let Some(file) = &self.orphans.file else {
            return Ok(None);
        };
        let count = self.orphans.free.len();
        // Threads start at different blocks, so that their transactions share as little as can be.
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
            let block = self.cache.read(nr)?;
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
                block: index as u32,
                slot: slot as u32,
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
                format!("inode {ino} is in it, and there is none"),
            )
        })?;
        let (free, nr) = self.orphans.block(file, block as usize)?;
        let mut free = free.lock();
        let cached = self.cache.read(nr)?;
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

/// A small number that tells threads apart.
fn thread_number() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|n| *n)
}
