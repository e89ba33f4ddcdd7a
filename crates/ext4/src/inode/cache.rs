//! The inode cache: which inodes are in memory, who uses them, and who may leave.
//!
//! Invariants:
//! * **inode.I1** At most one [`Inode`] exists per number; who holds its `Arc` keeps it in the
//!   cache.
//! * **inode.I2** The inode table block equals the body whenever the inode's lock is free (but for
//!   a lazy access time), so an inode can be dropped and loaded again; the new one's sync points
//!   cover the old one's (`evicted`).
//! * **inode.I3** An inode without names, on the orphan list, open, with dirty data or a lazy
//!   access time stays in memory; and while the kernel knows it, one with failures that somebody
//!   may have to be told of.
//! * **inode.I4** `dead` is set under the shard's lock by the one who deletes; nobody gets it
//!   after.
//! * **inode.I5** `deleted` is set under the inode's lock; who locks it later is told ESTALE before
//!   anything changes. Who got the inode before it was dead, and locks it before it is deleted, may
//!   change it as ever: it is deleted after that.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stetfs_journal::CommitPoint;
use stetfs_sync::{Mutex, Rank};

use super::Inode;
use crate::types::Ino;

const SHARDS: usize = 64;
/// Inodes that stay in memory without being needed, over all shards.
const CAPACITY: usize = 16 << 10;
/// Inodes that are looked at for one that may leave.
const LOOKS: usize = 16;
/// Stale numbers that a shard's queue may hold beside as many as it has inodes.
const QUEUE_SLACK: usize = 256;

#[derive(Default)]
pub(super) struct Shard {
    pub(super) inodes: HashMap<Ino, Entry>,
    /// How often the kernel was told of each inode and has not forgotten it; also of inodes that
    /// left memory.
    pub(super) lookups: HashMap<Ino, u64>,
    /// Candidates for leaving, oldest first. A number may be stale.
    queue: VecDeque<Ino>,
    /// The last search found none that may leave.
    stuck: bool,
    /// Sync points of all inodes that left (inode.I2).
    pub(super) evicted: CommitPoint,
}

pub(super) struct Entry {
    pub(super) inode: Arc<Inode>,
    /// Used since it was last looked at for leaving.
    referenced: AtomicBool,
}

/// All inodes in memory.
pub(crate) struct InodeCache {
    pub(super) shards: Box<[Mutex<Shard>]>,
    /// Counts what happens to inodes without names.
    pub(super) nameless_changes: AtomicU64,
}

impl Default for InodeCache {
    fn default() -> InodeCache {
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(Rank::InodeCache, Shard::default()))
            .collect();
        InodeCache {
            shards,
            nameless_changes: AtomicU64::new(0),
        }
    }
}

impl InodeCache {
    pub(super) fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino as usize % SHARDS]
    }

    /// All inodes in memory now.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().inodes.values().map(|e| e.inode.clone()));
        }
        all
    }

    pub(super) fn nameless_changed(&self) {
        self.nameless_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an inode that `of` takes has no name any more, and is not gone yet.
    pub(super) fn any_nameless(&self, of: impl Fn(&Inode) -> bool) -> bool {
        let nameless = |e: &Entry| e.inode.unlinked.load(Ordering::Acquire) && of(&e.inode);
        let in_shard = |s: &Mutex<Shard>| s.lock().inodes.values().any(nameless);
        self.shards.iter().any(in_shard)
    }

    /// The inode if it is in memory and not being deleted.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let entry = shard.inodes.get(&ino)?;
        // A store at every look would bounce the cache line between cores.
        if !entry.referenced.load(Ordering::Relaxed) {
            entry.referenced.store(true, Ordering::Relaxed);
        }
        Some(entry.inode.clone())
    }

    /// Numbers of inodes in memory, and of lookups the kernel holds.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(a, b), s| {
            let s = s.lock();
            (a + s.inodes.len() as u64, b + s.lookups.len() as u64)
        })
    }
}

impl Shard {
    pub(super) fn insert(&mut self, inode: Arc<Inode>) {
        let ino = inode.ino;
        self.make_room();
        let before = self.inodes.insert(
            ino,
            Entry {
                inode,
                referenced: AtomicBool::new(false),
            },
        );
        // One that is deleted leaves after its number is free.
        debug_assert!(
            before.is_none_or(|e| e.inode.dead.load(Ordering::Acquire)),
            "inode.I1: two inodes have the number {ino}"
        );
        self.queue.push_back(ino);
        if self.queue.len() > 2 * self.inodes.len() + QUEUE_SLACK {
            // Numbers of deleted inodes pile up.
            let mut seen = HashSet::new();
            let inodes = &self.inodes;
            self.queue
                .retain(|ino| inodes.contains_key(ino) && seen.insert(*ino));
        }
    }

    /// Lets inodes go that nobody needs while there are too many. Where none may leave, as while an
    /// archive is unpacked, each new one has one other looked at.
    fn make_room(&mut self) {
        while self.inodes.len() >= CAPACITY / SHARDS {
            self.stuck = !self.evict_one(if self.stuck { 1 } else { LOOKS });
            if self.stuck {
                return;
            }
        }
    }

    /// Lets one inode go that nobody needs, of so many that are looked at.
    fn evict_one(&mut self, looks: usize) -> bool {
        for _ in 0..looks {
            let Some(ino) = self.queue.pop_front() else {
                return false;
            };
            let Some(entry) = self.inodes.get(&ino) else {
                continue;
            };
            if entry.referenced.swap(false, Ordering::Relaxed)
                || !entry.inode.may_leave()
                || (self.lookups.contains_key(&ino)
                    && entry.inode.dirty.failures.concerns_callers())
            {
                self.queue.push_back(ino);
                continue;
            }
            if let Some(entry) = self.inodes.remove(&ino) {
                self.evicted.merge(entry.inode.metadata.lock().upto(true));
            }
            return true;
        }
        false
    }

    /// If nobody uses the nameless inode any more, marks it dead and returns it to be deleted
    /// (inode.I4).
    pub(super) fn claim(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let inode = &self.inodes.get(&ino)?.inode;
        let gone = inode.unlinked.load(Ordering::Acquire) && self.take(inode);
        gone.then(|| inode.clone())
    }

    /// Marks an inode dead that nobody uses; says whether that is so.
    pub(super) fn take(&self, inode: &Inode) -> bool {
        inode.opens.load(Ordering::Acquire) == 0
            && !self.lookups.contains_key(&inode.ino)
            && !inode.dead.swap(true, Ordering::AcqRel)
    }
}

impl Inode {
    /// Whether the cache holds the only reference and nothing is lost with the inode (inode.I3).
    fn may_leave(self: &Arc<Inode>) -> bool {
        Arc::strong_count(self) == 1
            && self.opens.load(Ordering::Acquire) == 0
            && !self.unlinked.load(Ordering::Acquire)
            && !self.orphaned.load(Ordering::Acquire)
            && !self.lazy.load(Ordering::Acquire)
            && self.dirty.may_leave()
            && self.window.lock().is_none()
    }
}
