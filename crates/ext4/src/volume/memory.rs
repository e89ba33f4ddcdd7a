//! How much memory an open volume may use.

use std::sync::atomic::Ordering;

use super::log;
use crate::fs::Fs;

impl Fs {
    /// The bound of the cache now, bytes ([`FsOptions::cache_bytes`](crate::FsOptions)).
    pub fn cache_bytes(&self) -> u64 {
        self.vol.cache_bytes.load(Ordering::Relaxed)
    }

    /// Another bound of the cache from now on, bytes, and of all that goes by it: dirty data, what
    /// the journal holds, and groups of files that change together. Clean blocks above it leave
    /// before this returns; what is dirty leaves as it comes home, and writers wait for that.
    ///
    /// What a transaction may hold stays as it was when the volume was opened.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.vol.cache_bytes.store(bytes, Ordering::Relaxed);
        self.vol.journal.set_memory(log::memory(bytes));
        self.data.set_cache_bytes(bytes);
        self.vol.cache.set_capacity(bytes);
    }
}
