//! The memory of an open volume.

use std::sync::atomic::Ordering;

use crate::fs::Fs;
use crate::volume::memory::journal_memory;

impl Fs {
    /// The present bound of the cache, bytes ([`FsOptions::cache_bytes`](crate::FsOptions)).
    pub fn cache_bytes(&self) -> u64 {
        self.vol.cache_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bound of the cache, bytes, and the limits derived from it: of dirty data, of the
    /// journal, and of atomic groups. Clean blocks above the bound leave the cache before this
    /// returns. Dirty blocks leave when they are written back, and writers wait for that.
    ///
    /// The limit of a transaction stays as it was when the volume was opened.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.vol.cache_bytes.store(bytes, Ordering::Relaxed);
        self.vol.journal.set_memory(journal_memory(bytes));
        self.data.set_cache_bytes(bytes);
        self.vol.cache.set_capacity(bytes);
    }
}
