//! Control of write-back by a caller.

use stetfs_sync::timed::Instant;

use crate::fs::Fs;
use crate::ops::inodes::OpenRef;

impl Fs {
    /// Shortens the age of the file's dirty data: it was already dirty for a while in the kernel's
    /// page cache. It is written back no later than with the next commit, instead of waiting for
    /// its full age again.
    pub fn write_back_early(&self, f: &OpenRef) {
        let due = Instant::now().checked_add(self.data.early_age());
        let mut ledger = f.inode.dirty.ledger.lock();
        if ledger.has_dirty() {
            ledger.is_due_at(due);
        }
    }
}
