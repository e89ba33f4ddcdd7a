//! The orphan list and orphan file in memory.

use std::collections::HashMap;

use stetfs_ondisk::ext4::orphan_file;
use stetfs_sync::{Mutex, MutexGuard, Rank};

use crate::error::{FsError, Result};
use crate::types::{BlockNr, Ino};
use stetfs_ondisk::num::count32;

/// The orphan file's blocks. All are read and checked when the volume is opened.
pub(crate) struct OrphanFile {
    /// Blocks of the file in order.
    pub(crate) blocks: Vec<BlockNr>,
    /// Seed of the blocks' checksums; `None` on volumes without checksums.
    pub(crate) seed: Option<u32>,
}

/// The orphan list and orphan file in memory.
pub(crate) struct Orphans {
    state: Mutex<State>,
    pub(super) file: Option<OrphanFile>,
    /// Free slots of each block of the file. A thread that changes a block holds its lock.
    pub(super) free: Vec<Mutex<u32>>,
    /// The report on the orphans that an earlier mount left.
    pub(crate) finished: stetfs_sync::timed::Mutex<OrphansFinished>,
}

/// The orphan list.
pub(crate) struct State {
    pub(super) head: Ino,
    /// Neighbours of each inode on the list: towards the head, then away from it; 0 at the ends.
    pub(super) links: HashMap<Ino, (Ino, Ino)>,
}

pub(super) fn not_listed(ino: Ino) -> FsError {
    FsError::corrupt("orphan list", 0, format!("inode {ino} is not on it"))
}

impl State {
    /// The value of `i_dtime` for an inode on the list.
    ///
    /// # Errors
    /// `Corrupt` when the inode is not on the list: a 0 would cut off its successors.
    pub(super) fn next_of(&self, ino: Ino) -> Result<u32> {
        let links = self.links.get(&ino).ok_or_else(|| not_listed(ino))?;
        Ok(links.1)
    }
}

impl Orphans {
    /// The state from the list as found on the volume (head first), and from the file with its free
    /// slots per block.
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
            finished: stetfs_sync::timed::Mutex::default(),
        }
    }

    /// Locks the list.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A block of the file: its free slots, and its block number.
    pub(super) fn block(&self, file: &OrphanFile, index: usize) -> Result<(&Mutex<u32>, BlockNr)> {
        let block = self.free.get(index).zip(file.blocks.get(index).copied());
        block.ok_or_else(|| FsError::corrupt("orphan file", 0, format!("it has no block {index}")))
    }

    /// Whether the volume has an orphan file.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the orphan file holds nothing.
    pub(crate) fn file_is_empty(&self, block_size: u32) -> bool {
        let all = count32(orphan_file::slots_per_block(block_size as usize));
        self.free.iter().all(|free| *free.lock() == all)
    }
}

/// The report on the orphans of an earlier mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphansFinished {
    /// Inodes without a name, deleted.
    pub deleted: u64,
    /// Files with a truncation under way, truncated.
    pub truncated: u64,
    /// Inodes left to e2fsck, because the volume has errors or they are damaged.
    pub left: u64,
}

impl std::ops::AddAssign for OrphansFinished {
    fn add_assign(&mut self, more: OrphansFinished) {
        self.deleted += more.deleted;
        self.truncated += more.truncated;
        self.left += more.left;
    }
}
