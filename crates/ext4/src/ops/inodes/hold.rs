//! Getting inodes, holding them open, and releasing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stetfs_ondisk::ext4::features::Incompat;

use crate::data::{KeptFailures, Opener};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::ops::inodes::{OpenInode, OpenRef};
use crate::types::{Caller, FileType, Ino};

impl Fs {
    /// The kernel's lookup count of each inode that it has not forgotten.
    pub fn lookups(&self) -> Vec<(Ino, u64)> {
        let mut all = Vec::new();
        for shard in &self.inodes.cache.shards {
            all.extend(shard.lock().lookups.iter().map(|(ino, n)| (*ino, *n)));
        }
        all
    }

    /// Whether there are files without a name: held open, known to the kernel, or being deleted.
    /// Their space becomes free when the last of these ends.
    pub fn has_nameless(&self) -> bool {
        self.inodes.cache.any_nameless(|_| true)
    }

    /// Whether files are being deleted. Their deletion waits only for the journal and the device.
    pub fn is_deleting(&self) -> bool {
        let dead = |i: &Inode| i.dead.load(Ordering::Acquire);
        self.inodes.cache.any_nameless(dead)
    }

    /// The number of times that a file lost its last name, was closed without a name, or was
    /// deleted.
    pub fn nameless_changes(&self) -> u64 {
        self.inodes.cache.nameless_changes.load(Ordering::Relaxed)
    }

    /// [`has_nameless`](Self::has_nameless) for files that are not open.
    pub fn has_closed_nameless(&self) -> bool {
        let closed = |i: &Inode| i.opens.load(Ordering::Acquire) == 0;
        self.inodes.cache.any_nameless(closed)
    }

    /// Adds the lookup counts of an earlier opening of the volume ([`lookups`](Self::lookups)),
    /// when the kernel continues with this one.
    pub fn adopt_lookups(&self, lookups: &[(Ino, u64)]) {
        for (ino, n) in lookups {
            *self
                .inodes
                .cache
                .shard(*ino)
                .lock()
                .lookups
                .entry(*ino)
                .or_insert(0) += n;
        }
    }

    /// Takes back `nlookup` references from the kernel. The caller holds no lock and no handle.
    pub fn forget(&self, ino: Ino, nlookup: u64) {
        let (unused, gone) = {
            let mut shard = self.inodes.cache.shard(ino).lock();
            match shard.lookups.get_mut(&ino) {
                Some(n) if *n > nlookup => {
                    *n -= nlookup;
                    return;
                }
                _ => shard.lookups.remove(&ino),
            };
            // The file is not open in the kernel either.
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

    /// Deletes an inode if its last name is gone and it has no users. Called after every operation
    /// that removed a name, with no lock and no handle held.
    pub(crate) fn iput(&self, inode: &Arc<Inode>) {
        if !inode.unlinked.load(Ordering::Acquire) {
            return;
        }
        let gone = self.inodes.cache.shard(inode.ino).lock().claim(inode.ino);
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }

    /// Holds an inode open. The caller has done the checks.
    pub(crate) fn open_ref(&self, inode: Arc<Inode>, flags: i32) -> Result<OpenRef> {
        let fs = self.me.upgrade().ok_or(FsError::Errno(libc::ESHUTDOWN))?;
        let _shard = self.inodes.cache.shard(inode.ino).lock();
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

    /// A file that is open in the kernel but not here, for one operation by `caller`. It stays,
    /// also without a name, until the kernel [forgets](Self::forget) it, which is after its last
    /// close and the end of its last request. `flags` are those of open(2), as far as they are
    /// known.
    ///
    /// # Errors
    /// ESTALE when there is no such inode; ENOKEY for a file that needs an encryption key.
    pub fn unheld(&self, ino: Ino, flags: i32, caller: Caller) -> Result<OpenRef> {
        let fs = self.me.upgrade().ok_or(FsError::Errno(libc::ESHUTDOWN))?;
        let inode = self.inodes.iget(ino)?;
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

    /// Failed write-backs that users of files must still be told of, for another opening of the
    /// volume.
    pub fn kept_failures(&self) -> Vec<(Ino, KeptFailures)> {
        let inodes = self.inodes.all();
        let kept = |inode: &Arc<Inode>| Some((inode.ino, inode.dirty.failures.keep()?));
        inodes.iter().filter_map(kept).collect()
    }

    /// Continues with [`kept_failures`](Self::kept_failures). Failures of files that no longer
    /// exist are dropped.
    pub fn adopt_failures(&self, kept: Vec<(Ino, KeptFailures)>) {
        for (ino, failures) in kept {
            match self.inodes.iget(ino) {
                Ok(inode) => inode.dirty.failures.go_on_with(failures),
                Err(e) => tracing::warn!(
                    ino,
                    "a failed write-back of a file that no longer exists: {e}"
                ),
            }
        }
    }

    /// Closes an [`OpenInode`].
    pub(crate) fn close_inode(&self, inode: &Arc<Inode>) {
        let (last, gone) = {
            let mut shard = self.inodes.cache.shard(inode.ino).lock();
            let last = inode.opens.fetch_sub(1, Ordering::AcqRel) == 1;
            (last, if last { shard.claim(inode.ino) } else { None })
        };
        if last && inode.unlinked.load(Ordering::Acquire) {
            self.inodes.cache.nameless_changed();
        }
        if last {
            self.space.release_window(inode);
        }
        if let Some(inode) = gone {
            self.delete_inode(&inode);
        }
    }
}
