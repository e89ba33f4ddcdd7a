//! Which files have dirty data, and how much there is of all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Condvar;
use stetfs_sync::{Mutex, Rank};

use crate::types::{FsOptions, Ino};

/// All files with dirty data, and how much they have.
pub(crate) struct DirtySet {
    /// May hold numbers of files that are clean again.
    pub(super) files: Mutex<BTreeSet<Ino>>,
    /// Those that go home behind their writers.
    pub(super) streams: Mutex<BTreeSet<Ino>>,
    /// Files with new blocks whose data could not be written; whether hiding them failed before.
    pub(super) lost: Mutex<BTreeMap<Ino, bool>>,
    /// Dirty bytes, those being written included.
    bytes: AtomicU64,
    /// Above this writers wait, bytes.
    bound: AtomicU64,
    /// For [`DataStore::throttle_data`]: something was written home.
    room: Condvar,
    waiting: parking_lot::Mutex<()>,
}

/// Dirty bytes above which writers wait, with a cache of so many bytes.
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
            waiting: parking_lot::Mutex::new(()),
        }
    }

    /// Dirty bytes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Whether there is something to be looked at again.
    pub(super) fn needs_care(&self) -> bool {
        self.bytes() > 0 || !self.lost.lock().is_empty()
    }

    /// From here on data is written home without waiting for its age.
    pub(crate) fn much(&self) -> u64 {
        self.bound.load(Ordering::Relaxed) / 2
    }

    /// The cache has another bound now, bytes.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.bound.store(bound(bytes), Ordering::Relaxed);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// So many bytes have come home, or are gone.
    pub(super) fn less(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// So many bytes more. Gives how many there were.
    pub(super) fn more(&self, bytes: u64) -> u64 {
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
