//! State shared by all users of value inodes.

use std::sync::Arc;

use stetfs_sync::timed::atomic::{AtomicBool, Ordering};
use stetfs_sync::{Mutex, Rank};

use crate::inode::Inode;

/// State shared by all users of value inodes.
pub(crate) struct Values {
    /// See value.V2.
    pub(super) lock: Mutex<()>,
    /// See value.V4.
    leaving: Mutex<Vec<Arc<Inode>>>,
    /// Whether `leaving` holds anything. Every operation reads it.
    any: AtomicBool,
}

impl Default for Values {
    fn default() -> Values {
        Values {
            lock: Mutex::new(Rank::Values, ()),
            leaving: Mutex::new(Rank::InodeLeaf, Vec::new()),
            any: AtomicBool::new(false),
        }
    }
}

impl Values {
    pub(super) fn leave(&self, inode: Arc<Inode>) {
        self.leaving.lock().push(inode);
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Vec<Arc<Inode>> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut leaving = self.leaving.lock();
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut leaving)
    }
}
