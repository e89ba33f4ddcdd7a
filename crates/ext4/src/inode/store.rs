//! `InodeStore`: inodes in memory, the inode table, orphans and usage.

use std::sync::{Arc, OnceLock};

use stetfs_ondisk::ext4::inode::InodeView;
use stetfs_sync::timed::atomic::{AtomicU64, Ordering};

use super::Inode;
use super::cache::InodeCache;
use super::orphans::Orphans;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::quota::Quotas;
use crate::space::Allocator;
use crate::state::body::{InodeBody, is_ordinary};
use crate::types::Ino;
use crate::volume::Volume;
use crate::xattr::Values;

/// Gets inodes from memory or from the inode table, and puts them into the journal.
pub(crate) struct InodeStore {
    pub(crate) vol: Arc<Volume>,
    pub(crate) space: Arc<Allocator>,
    pub(crate) cache: InodeCache,
    /// The orphan list or file.
    pub(super) orphans: Orphans,
    /// Usage and limits of users, groups and projects, if the volume counts them.
    quotas: OnceLock<Quotas>,
    /// State shared by all users of attribute values in inodes of their own.
    values: Arc<Values>,
    /// Inodes whose access time is newer in memory than in the journal.
    pub(super) lazy: AtomicU64,
    /// First block of the part of the inode table for which a joint read failed last; 0: none.
    unread: AtomicU64,
}

impl InodeStore {
    /// A store without inodes in memory.
    pub(crate) fn new(vol: Arc<Volume>, space: Arc<Allocator>, orphans: Orphans) -> InodeStore {
        InodeStore {
            vol,
            space,
            cache: InodeCache::default(),
            orphans,
            quotas: OnceLock::new(),
            values: Arc::default(),
            lazy: AtomicU64::new(0),
            unread: AtomicU64::new(0),
        }
    }

    /// The orphan list or file.
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// State shared by all users of attribute values in inodes of their own.
    pub(crate) fn values(&self) -> &Arc<Values> {
        &self.values
    }

    /// Usage and limits, if they are counted. A volume that is only read counts none.
    pub(crate) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.get()
    }

    /// Counts from now on the usage of inodes. Called once, when the volume is opened.
    pub(crate) fn count_in(&self, quotas: Quotas) {
        let set = self.quotas.set(quotas);
        debug_assert!(set.is_ok(), "quotas are read once");
    }

    /// All inodes in memory now.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.cache.all()
    }

    /// The inode if it is in memory and not being deleted.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.cache.find(ino)
    }

    /// The number of inodes in memory, and of inodes that the kernel holds lookups of.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.cache.counts()
    }

    /// The inode, from memory or from the inode table.
    ///
    /// # Errors
    /// ESTALE when no file has that number; `Corrupt` when the inode contradicts itself.
    pub(crate) fn iget(&self, ino: Ino) -> Result<Arc<Inode>> {
        if !is_ordinary(&self.vol.geo, ino) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        let inode = match self.cache.find(ino) {
            Some(inode) => inode,
            None => self.load_inode(ino, false)?,
        };
        if inode.dead.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        if inode.value {
            let detail = format!("inode {ino} holds the value of an attribute");
            return self.vol.noted(Err(FsError::corrupt("inode", 0, detail)));
        }
        Ok(inode)
    }

    /// Like [`iget`](Self::iget), also for an inode without names or one of the volume's own.
    pub(crate) fn iget_special(&self, ino: Ino) -> Result<Arc<Inode>> {
        match self.cache.find(ino) {
            Some(inode) => Ok(inode),
            None => self.load_inode(ino, true),
        }
    }

    fn load_inode(&self, ino: Ino, special: bool) -> Result<Arc<Inode>> {
        let (nr, offset) = self.space.inode_place(ino)?;
        let found = self.vol.cache.find(nr);
        if found.is_none_or(|block| block.peek().is_none()) {
            let (first, count) = self.space.inodes_beside(ino)?;
            // If another block of the part cannot be read, this one still may be; the whole part is
            // not tried again for each inode.
            if self.unread.load(Ordering::Relaxed) != first
                && self.vol.cache.prefetch(first, count).is_err()
            {
                self.unread.store(first, Ordering::Relaxed);
            }
        }
        let block = self.vol.cache.read(nr)?;
        let slot = || -> Result<Box<[u8]>> {
            let page = block.peek();
            let bytes = page
                .as_deref()
                .and_then(|p| p.get(offset..offset + usize::from(self.vol.geo.inode_size)));
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
        if !view.verify_checksum(ino, &self.vol.geo.checksums) {
            return self
                .vol
                .noted(Err(corrupt("checksum does not match".into())));
        }
        let checked = view.check(ino, &self.vol.geo.layout);
        self.vol
            .noted(checked.map_err(|e| corrupt(e.to_string())))?;

        let mut shard = self.cache.shard(ino).lock();
        if let Some(entry) = shard.inodes.get(&ino) {
            return Ok(entry.inode.clone());
        }
        // Another thread may have loaded, changed and dropped the inode since it was read above.
        // The content of the block now, under the shard's lock, is the latest (inode.I2).
        let body = InodeBody::new(slot()?, &self.vol.geo)?;
        let metadata = MetadataLedger::after(shard.evicted.clone());
        let inode = Arc::new(Inode::new(ino, body, metadata)?);
        shard.insert(inode.clone());
        Ok(inode)
    }

    /// Puts a new inode into the cache.
    pub(crate) fn add_inode(&self, inode: Arc<Inode>) {
        self.cache.shard(inode.ino).lock().insert(inode);
    }

    /// Takes a deleted inode out of the cache. Its number is free already and may belong to a new
    /// file, which stays.
    pub(crate) fn drop_inode(&self, inode: &Arc<Inode>) {
        let mut shard = self.cache.shard(inode.ino).lock();
        let cached = shard.inodes.get(&inode.ino);
        let is_its = cached.is_some_and(|entry| Arc::ptr_eq(&entry.inode, inode));
        if is_its || self.vol.opts.canary.drop_any_inode {
            shard.inodes.remove(&inode.ino);
        }
        self.cache.nameless_changed();
    }

    /// Counts one reference, which the kernel gives back with [`forget`](crate::Fs::forget). Every
    /// answer that names an inode to the kernel (lookup, create …) counts one.
    pub(crate) fn count_lookup(&self, ino: Ino) {
        *self.cache.shard(ino).lock().lookups.entry(ino).or_insert(0) += 1;
    }

    /// Marks an inode without users dead, so that it can be deleted in the transaction that takes
    /// its last name away; returns whether it had no users. The caller holds its lock and then
    /// deletes it, unless the journal has stopped.
    pub(crate) fn take_unused(&self, inode: &Inode) -> bool {
        self.cache.shard(inode.ino).lock().take(inode)
    }

    /// Called after a write to a file without an open handle: if there are too many windows of such
    /// files, releases the one that was unused for the longest time.
    pub(crate) fn limit_windows(&self, inode: &Inode) {
        let oldest = self.space.oldest_window(inode);
        if let Some(other) = oldest.and_then(|ino| self.cache.find(ino))
            && other.opens.load(Ordering::Acquire) == 0
        {
            self.space.release_window(&other);
        }
    }
}
