//! Access times that are newer in memory than in the journal (`lazytime`).

use std::sync::atomic::Ordering;

use super::Inode;
use super::store::InodeStore;

/// The most inodes whose access time is newer in memory than in the journal.
const MAX_LAZY: u64 = 8192;

impl InodeStore {
    /// Whether the inode may be written later, and if so, remembers that it must. The caller holds
    /// its lock.
    pub(crate) fn put_off(&self, inode: &Inode) -> bool {
        let lazy = &self.lazy;
        if inode.lazy.load(Ordering::Acquire) {
            return true;
        }
        if lazy.load(Ordering::Relaxed) >= MAX_LAZY {
            return false;
        }
        inode.lazy.store(true, Ordering::Release);
        lazy.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The inode was written, its access time with it.
    pub(super) fn no_longer_lazy(&self, inode: &Inode) {
        if inode.lazy.swap(false, Ordering::AcqRel) {
            self.lazy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there are such inodes.
    pub(crate) fn any_lazy(&self) -> bool {
        self.lazy.load(Ordering::Relaxed) > 0
    }
}
