//! The inode cache: inodes in memory, their users, and eviction.
//!
//! Invariants:
//! * **inode.I1** At most one [`Inode`] exists per number; a holder of its `Arc` keeps it in the
//!   cache.
//! * **inode.I2** The inode table block equals the body whenever the inode's lock is free (except
//!   for a lazy access time), so an inode can be dropped and loaded again; the sync points of the
//!   new one cover those of the old one (`evicted`).
//! * **inode.I3** An inode stays in memory while it has no names, is on the orphan list, is open,
//!   or has dirty data or a lazy access time; and, while the kernel knows it, as long as it has
//!   failures that may still have to be reported.
//! * **inode.I4** The thread that deletes an inode sets `dead` under the shard's lock; the cache
//!   does not hand out the inode after that.
//! * **inode.I5** `deleted` is set under the inode's lock; a thread that locks the inode later gets
//!   ESTALE before anything changes. A thread that got the inode before it was dead, and locks it
//!   before it is deleted, may change it as usual: the deletion follows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stetfs_journal::CommitPoint;
use stetfs_sync::timed::atomic::{AtomicBool, AtomicU64, Ordering};
use stetfs_sync::{Mutex, Rank};

use super::Inode;
use crate::types::Ino;

const SHARDS: usize = 64;
/// Inodes in memory, over all shards, above which unused ones are evicted.
const CAPACITY: usize = 16 << 10;
/// The most inodes that one search for an evictable one examines.
const LOOKS: usize = 16;
/// Stale numbers that a shard's queue may hold, in addition to one for each of its inodes.
const QUEUE_SLACK: usize = 256;

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) inodes: HashMap<Ino, Entry>,
    /// The kernel's lookup count of each inode that it has not forgotten, also of inodes that left
    /// memory.
    pub(crate) lookups: HashMap<Ino, u64>,
    /// Candidates for eviction, oldest first. A number may be stale.
    queue: VecDeque<Ino>,
    /// The last search found no evictable inode.
    stuck: bool,
    /// Merged sync points of all evicted inodes (inode.I2).
    pub(super) evicted: CommitPoint,
}

pub(crate) struct Entry {
    pub(crate) inode: Arc<Inode>,
    /// Used since eviction last examined it.
    referenced: AtomicBool,
}

/// All inodes in memory.
pub(crate) struct InodeCache {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Counts changes of inodes without names.
    pub(crate) nameless_changes: AtomicU64,
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
    pub(crate) fn shard(&self, ino: Ino) -> &Mutex<Shard> {
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

    pub(crate) fn nameless_changed(&self) {
        self.nameless_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an inode that `of` selects has no name any more and is not deleted yet.
    pub(crate) fn any_nameless(&self, of: impl Fn(&Inode) -> bool) -> bool {
        let nameless = |e: &Entry| e.inode.unlinked.load(Ordering::Acquire) && of(&e.inode);
        let in_shard = |s: &Mutex<Shard>| s.lock().inodes.values().any(nameless);
        self.shards.iter().any(in_shard)
    }

    /// The inode if it is in memory and not being deleted.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let entry = shard.inodes.get(&ino)?;
        // A store at every lookup would bounce the cache line between cores.
        if !entry.referenced.load(Ordering::Relaxed) {
            entry.referenced.store(true, Ordering::Relaxed);
        }
        Some(entry.inode.clone())
    }

    /// The number of inodes in memory, and of inodes that the kernel holds lookups of.
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
        // A deleted inode leaves the cache only after its number is free.
        debug_assert!(
            before.is_none_or(|e| e.inode.dead.load(Ordering::Acquire)),
            "inode.I1: two inodes have the number {ino}"
        );
        self.queue.push_back(ino);
        if self.queue.len() > 2 * self.inodes.len() + QUEUE_SLACK {
            // Numbers of deleted inodes accumulate.
            let mut seen = HashSet::new();
            let inodes = &self.inodes;
            self.queue
                .retain(|ino| inodes.contains_key(ino) && seen.insert(*ino));
        }
    }

    /// Evicts unused inodes while there are too many. While no inode may leave, as when an archive
    /// is unpacked, each insertion examines only one other inode.
    fn make_room(&mut self) {
        while self.inodes.len() >= CAPACITY / SHARDS {
            self.stuck = !self.evict_one(if self.stuck { 1 } else { LOOKS });
            if self.stuck {
                return;
            }
        }
    }

    /// Evicts one unused inode, examining at most `looks`.
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

    /// Marks a nameless inode without users dead, and returns it for deletion (inode.I4).
    pub(crate) fn claim(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let inode = &self.inodes.get(&ino)?.inode;
        let gone = inode.unlinked.load(Ordering::Acquire) && self.take(inode);
        gone.then(|| inode.clone())
    }

    /// Marks an inode without users dead; returns whether it had none.
    pub(super) fn take(&self, inode: &Inode) -> bool {
        inode.opens.load(Ordering::Acquire) == 0
            && !self.lookups.contains_key(&inode.ino)
            && !inode.dead.swap(true, Ordering::AcqRel)
    }
}

impl Inode {
    /// Whether the cache holds the only reference, and nothing is lost with the inode (inode.I3).
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
