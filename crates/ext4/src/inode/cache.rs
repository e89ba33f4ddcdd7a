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
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeView;
use stetfs_sync::{Mutex, Rank};

use super::body::{InodeBody, is_ordinary};
use super::{Inode, OpenInode};
use crate::data::{KeptFailures, Opener};
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{Caller, FileType, Ino, OpenRef};

const SHARDS: usize = 64;
/// Inodes that stay in memory without being needed, over all shards.
const CAPACITY: usize = 16 << 10;
/// Stale numbers that a shard's queue may hold beside as many as it has inodes.
const QUEUE_SLACK: usize = 256;

#[derive(Default)]
struct Shard {
    inodes: HashMap<Ino, Entry>,
    /// How often the kernel was told of each inode and has not forgotten it; also of inodes that
    /// left memory.
    lookups: HashMap<Ino, u64>,
    /// Candidates for leaving, oldest first. A number may be stale.
    queue: VecDeque<Ino>,
    /// Sync points of all inodes that left (inode.I2).
    evicted: CommitPoint,
}

struct Entry {
    inode: Arc<Inode>,
    /// Used since it was last looked at for leaving.
    referenced: AtomicBool,
}

/// All inodes in memory.
pub(crate) struct InodeCache {
    shards: Box<[Mutex<Shard>]>,
    /// Counts what happens to inodes without names.
    nameless_changes: AtomicU64,
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
    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
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
    fn any_nameless(&self, of: impl Fn(&Inode) -> bool) -> bool {
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
    fn insert(&mut self, inode: Arc<Inode>) {
        let ino = inode.ino;
        while self.inodes.len() >= CAPACITY / SHARDS && self.evict_one() {}
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

    /// Lets one inode go that nobody needs; gives up after a bounded search.
    fn evict_one(&mut self) -> bool {
        for _ in 0..16 {
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
    fn claim(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let inode = &self.inodes.get(&ino)?.inode;
        let gone = inode.unlinked.load(Ordering::Acquire) && self.take(inode);
        gone.then(|| inode.clone())
    }

    /// Marks an inode dead that nobody uses; says whether that is so.
    fn take(&self, inode: &Inode) -> bool {
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

impl Fs {
    /// The inode, from memory or from the inode table.
    ///
    /// # Errors
    /// ESTALE when no file has that number; `Corrupt` when the inode contradicts itself.
    pub(crate) fn iget(&self, ino: Ino) -> Result<Arc<Inode>> {
        if !is_ordinary(&self.geo, ino) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        let inode = match self.inodes.find(ino) {
            Some(inode) => inode,
            None => self.load_inode(ino, false)?,
        };
        if inode.dead.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        if inode.value {
            let detail = format!("inode {ino} holds the value of an attribute");
            return self.noted(Err(FsError::corrupt("inode", 0, detail)));
        }
        Ok(inode)
    }

    /// Like [`iget`](Self::iget), also for an inode without names or one of the volume's own.
    pub(crate) fn iget_special(&self, ino: Ino) -> Result<Arc<Inode>> {
        match self.inodes.find(ino) {
            Some(inode) => Ok(inode),
            None => self.load_inode(ino, true),
        }
    }

    fn load_inode(&self, ino: Ino, special: bool) -> Result<Arc<Inode>> {
        let (nr, offset) = self.inode_place(ino)?;
        let block = self.cache.read(nr)?;
        let slot = || -> Result<Box<[u8]>> {
            let page = block.peek();
            let bytes = page
                .as_deref()
                .and_then(|p| p.get(offset..offset + usize::from(self.geo.inode_size)));
            bytes.map(Box::from).ok_or_else(|| {
                FsError::corrupt("inode table", nr, "slot past the end of its block")
            })
        };
        let view = InodeView::new(slot()?)?;
        if view.links() == 0 && !(special && view.mode() != 0) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        let corrupt =
            |detail: String| FsError::corrupt("inode", nr, format!("inode {ino}: {detail}"));
        if !view.verify_checksum(ino, &self.geo.checksums) {
            return self.noted(Err(corrupt("checksum does not match".into())));
        }
        let checked = view.check(ino, &self.geo.layout);
        self.noted(checked.map_err(|e| corrupt(e.to_string())))?;

        let mut shard = self.inodes.shard(ino).lock();
        if let Some(entry) = shard.inodes.get(&ino) {
            return Ok(entry.inode.clone());
        }
        // Somebody may have loaded, changed and dropped it since it was read above; what the block
        // holds now, under the shard's lock, is the latest (inode.I2).
        let body = InodeBody::new(slot()?, &self.geo)?;
        let metadata = MetadataLedger::after(shard.evicted.clone());
        let inode = Arc::new(Inode::new(ino, body, metadata)?);
        shard.insert(inode.clone());
        Ok(inode)
    }

    /// Puts a new inode into the cache.
    pub(super) fn add_inode(&self, inode: Arc<Inode>) {
        self.inodes.shard(inode.ino).lock().insert(inode);
    }

    /// Takes a deleted inode out of the cache. Its number is free already and may be that of a new
    /// file, which stays.
    pub(crate) fn drop_inode(&self, inode: &Arc<Inode>) {
        let mut shard = self.inodes.shard(inode.ino).lock();
        let cached = shard.inodes.get(&inode.ino);
        let is_its = cached.is_some_and(|entry| Arc::ptr_eq(&entry.inode, inode));
        if is_its || self.opts.canary.drop_any_inode {
            shard.inodes.remove(&inode.ino);
        }
        self.inodes.nameless_changed();
    }

    /// Counts one reference that the kernel will give back with [`forget`](Self::forget). Every
    /// answer that names an inode to the kernel (lookup, create …) counts one.
    pub(crate) fn count_lookup(&self, ino: Ino) {
        *self
            .inodes
            .shard(ino)
            .lock()
            .lookups
            .entry(ino)
            .or_insert(0) += 1;
    }

    /// How often the kernel was told of each inode that it has not forgotten.
    pub fn lookups(&self) -> Vec<(Ino, u64)> {
        let mut all = Vec::new();
        for shard in &self.inodes.shards {
            all.extend(shard.lock().lookups.iter().map(|(ino, n)| (*ino, *n)));
        }
        all
    }

    /// Whether there are files without a name: held open, known to the kernel or just being
    /// deleted. What they have of the volume becomes free when the last of that is over.
    pub fn has_nameless(&self) -> bool {
        self.inodes.any_nameless(|_| true)
    }

    /// Counts files that lose their last name, are closed without one or deleted.
    pub fn nameless_changes(&self) -> u64 {
        self.inodes.nameless_changes.load(Ordering::Relaxed)
    }

    /// [`has_nameless`](Self::has_nameless) of files that nobody holds open.
    pub fn has_closed_nameless(&self) -> bool {
        let closed = |i: &Inode| i.opens.load(Ordering::Acquire) == 0;
        self.inodes.any_nameless(closed)
    }

    /// Counts references that the kernel got while the volume was open before
    /// ([`lookups`](Self::lookups)): it goes on with another opening of the volume.
    pub fn adopt_lookups(&self, lookups: &[(Ino, u64)]) {
        for (ino, n) in lookups {
            *self
                .inodes
                .shard(*ino)
                .lock()
                .lookups
                .entry(*ino)
                .or_insert(0) += n;
        }
    }

    /// The kernel gives `nlookup` references back. No lock and no handle may be held.
    pub fn forget(&self, ino: Ino, nlookup: u64) {
        let (unused, gone) = {
            let mut shard = self.inodes.shard(ino).lock();
            match shard.lookups.get_mut(&ino) {
                Some(n) if *n > nlookup => {
                    *n -= nlookup;
                    return;
                }
                _ => shard.lookups.remove(&ino),
            };
            // Nobody has it open there either.
            let unused = shard.inodes.get(&ino).map(|entry| &entry.inode);
            let unused = unused.filter(|inode| inode.opens.load(Ordering::Acquire) == 0);
            (unused.cloned(), shard.claim(ino))
        };
        if let Some(inode) = unused {
            inode.dirty.failures.not_in_use();
            self.release_window(&inode);
        }
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }

    /// Marks an inode dead that nobody uses, so that it can be deleted in the transaction that
    /// takes its last name away; says whether that is so. The caller holds its lock and deletes
    /// it, or the journal has stopped.
    pub(crate) fn take_unused(&self, inode: &Inode) -> bool {
        self.inodes.shard(inode.ino).lock().take(inode)
    }

    /// Deletes an inode if its last name is gone and nobody uses it. To be called after every
    /// operation that took a name away, with no lock and no handle held.
    pub(crate) fn iput(&self, inode: &Arc<Inode>) {
        if !inode.unlinked.load(Ordering::Acquire) {
            return;
        }
        let gone = self.inodes.shard(inode.ino).lock().claim(inode.ino);
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }

    /// Holds an inode open. The caller has made its checks.
    pub(crate) fn open_ref(&self, inode: Arc<Inode>, flags: i32) -> Result<OpenRef> {
        let fs = self.me.upgrade().ok_or(FsError::Errno(libc::ESHUTDOWN))?;
        let _shard = self.inodes.shard(inode.ino).lock();
        if inode.dead.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        inode.opens.fetch_add(1, Ordering::AcqRel);
        let told = Arc::new(inode.dirty.failures.opener());
        Ok(Arc::new(OpenInode {
            fs,
            inode,
            opener: Opener::Handle(told),
            flags,
        }))
    }

    /// A file that is open in the kernel and not held here, for one operation by `caller`. It
    /// stays, also without a name, until the kernel [forgets](Self::forget) it, which is after
    /// its last close and the end of its last request. `flags` of open(2) as far as they are
    /// known.
    ///
    /// # Errors
    /// ESTALE when there is no such inode; ENOKEY for one that can be read with a key only.
    pub fn unheld(&self, ino: Ino, flags: i32, caller: Caller) -> Result<OpenRef> {
        let fs = self.me.upgrade().ok_or(FsError::Errno(libc::ESHUTDOWN))?;
        let inode = self.iget(ino)?;
        if self.geo.incompat.contains(Incompat::ENCRYPT) && inode.kind == FileType::Regular {
            inode.body.read().check_key()?;
        }
        Ok(Arc::new(OpenInode {
            fs,
            inode,
            opener: Opener::Caller(caller),
            flags,
        }))
    }

    /// What those who use files are still to be told of failed home writes, for another opening of
    /// the volume.
    pub fn kept_failures(&self) -> Vec<(Ino, KeptFailures)> {
        let inodes = self.inodes.all();
        let kept = |inode: &Arc<Inode>| Some((inode.ino, inode.dirty.failures.keep()?));
        inodes.iter().filter_map(kept).collect()
    }

    /// Goes on with [`kept_failures`](Self::kept_failures). What they are of and is gone needs
    /// none.
    pub fn adopt_failures(&self, kept: Vec<(Ino, KeptFailures)>) {
        for (ino, failures) in kept {
            match self.iget(ino) {
                Ok(inode) => inode.dirty.failures.go_on_with(failures),
                Err(e) => tracing::warn!(ino, "a failure that nobody can be told of: {e}"),
            }
        }
    }

    /// The end of an [`OpenInode`].
    pub(super) fn close_inode(&self, inode: &Arc<Inode>) {
        let (last, gone) = {
            let mut shard = self.inodes.shard(inode.ino).lock();
            let last = inode.opens.fetch_sub(1, Ordering::AcqRel) == 1;
            (last, if last { shard.claim(inode.ino) } else { None })
        };
        if last && inode.unlinked.load(Ordering::Acquire) {
            self.inodes.nameless_changed();
        }
        if last {
            self.release_window(inode);
        }
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }
}
