//! Getting inodes, holding them and giving them back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeView;

use super::body::{InodeBody, is_ordinary};
use super::{Inode, OpenInode, OpenRef};
use crate::data::{KeptFailures, Opener};
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::{Caller, FileType, Ino};

impl Fs {
    /// The inode, from memory or from the inode table.
    ///
    /// # Errors
    /// ESTALE when no file has that number; `Corrupt` when the inode contradicts itself.
    pub(crate) fn iget(&self, ino: Ino) -> Result<Arc<Inode>> {
        if !is_ordinary(&self.vol.geo, ino) {
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
            return self.vol.noted(Err(FsError::corrupt("inode", 0, detail)));
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
        let (nr, offset) = self.space.inode_place(ino)?;
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

        let mut shard = self.inodes.shard(ino).lock();
        if let Some(entry) = shard.inodes.get(&ino) {
            return Ok(entry.inode.clone());
        }
        // Somebody may have loaded, changed and dropped it since it was read above; what the block
        // holds now, under the shard's lock, is the latest (inode.I2).
        let body = InodeBody::new(slot()?, &self.vol.geo)?;
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
        if is_its || self.vol.opts.canary.drop_any_inode {
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
            self.space.release_window(&inode);
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
        if self.vol.geo.incompat.contains(Incompat::ENCRYPT) && inode.kind == FileType::Regular {
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

    /// After a write to a file that nobody holds open here: the window that was not used for the
    /// longest goes back, if there are too many.
    pub(crate) fn limit_windows(&self, inode: &Inode) {
        let oldest = self.space.oldest_window(inode);
        if let Some(other) = oldest.and_then(|ino| self.inodes.find(ino))
            && other.opens.load(Ordering::Acquire) == 0
        {
            self.space.release_window(&other);
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
            self.space.release_window(inode);
        }
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }
}
