//! `DirtySet`: the files with dirty data, and the amount of dirty data of all files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stetfs_sync::timed::{
    Condvar,
    atomic::{AtomicU64, Ordering},
};
use stetfs_sync::{Mutex, Rank};

use crate::types::{FsOptions, Ino};

/// The files with dirty data, and the amount of dirty data.
pub(crate) struct DirtySet {
    /// Files with dirty data. Some may be clean again.
    pub(in crate::data) files: Mutex<BTreeSet<Ino>>,
    /// Files to be written back behind their writers.
    pub(in crate::data) streams: Mutex<BTreeSet<Ino>>,
    /// Files with new blocks whose data could not be written, and whether hiding the blocks failed
    /// before.
    pub(in crate::data) lost: Mutex<BTreeMap<Ino, bool>>,
    /// Dirty bytes, including those being written.
    bytes: AtomicU64,
    /// Bound above which writers wait, bytes.
    bound: AtomicU64,
    /// Signals [`DataStore::throttle_data`] that data was written back.
    room: Condvar,
    waiting: stetfs_sync::timed::Mutex<()>,
}

/// The bound of dirty bytes above which writers wait, for this cache size in bytes.
fn bound(cache_bytes: u64) -> u64 {
    (cache_bytes / 2).max(256 << 10)
}

impl DirtySet {
    pub(crate) fn new(opts: &FsOptions) -> DirtySet {
        DirtySet {
            files: Mutex::new(Rank::InodeLeaf, BTreeSet::new()),
            streams: Mutex::new(Rank::InodeLeaf, BTreeSet::new()),
            lost: Mutex::new(Rank::InodeLeaf, BTreeMap::new()),
            bytes: AtomicU64::new(0),
            bound: AtomicU64::new(bound(opts.cache_bytes)),
            room: Condvar::new(),
            waiting: stetfs_sync::timed::Mutex::new(()),
        }
    }

    /// Dirty bytes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Whether the background thread has something to do.
    pub(in crate::data) fn needs_care(&self) -> bool {
        self.bytes() > 0 || !self.lost.lock().is_empty()
    }

    /// Dirty bytes above which data is written back before its age.
    pub(crate) fn much(&self) -> u64 {
        self.bound.load(Ordering::Relaxed) / 2
    }

    /// Adapts the bound to a new cache size, bytes.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.bound.store(bound(bytes), Ordering::Relaxed);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Subtracts bytes that were written back, or dropped.
    pub(in crate::data) fn less(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Adds bytes. Returns the number before.
    pub(in crate::data) fn more(&self, bytes: u64) -> u64 {
        self.bytes.fetch_add(bytes, Ordering::SeqCst)
    }

    /// Waits until there are fewer dirty bytes than the bound, at most `longest`.
    pub(crate) fn wait_for_room(&self, longest: Duration) {
        let mut waiting = self.waiting.lock();
        if self.is_full() {
            self.room.wait_for(&mut waiting, longest);
        }
    }

    /// Whether writers have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() > self.bound.load(Ordering::Relaxed)
    }
}
