//! Access times that are newer in memory than in the journal (`lazytime`).

use std::sync::atomic::Ordering;

use super::Inode;
use super::store::InodeStore;

/// The most inodes whose access time is newer in memory than in the journal.
const MAX_LAZY: u64 = 8192;

impl InodeStore {
    /// Marks the inode to be written later, if that is allowed; returns whether it is. The caller
    /// holds its lock.
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

    /// Notes that the inode was written, its access time with it.
    pub(super) fn no_longer_lazy(&self, inode: &Inode) {
        if inode.lazy.swap(false, Ordering::AcqRel) {
            self.lazy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there are such access times.
    pub(crate) fn any_lazy(&self) -> bool {
        self.lazy.load(Ordering::Relaxed) > 0
    }
}
