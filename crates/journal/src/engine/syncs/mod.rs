//! The requests for durability: a queue of those that need a commit, a queue of those that need
//! only data and a flush, and the period of commits.

mod gather;
mod queue;

use std::time::Duration;

use stetfs_sync::plain::atomic::{AtomicU64, Ordering};

use crate::canary::Canary;
pub(super) use queue::{Leader, Queue, Requests, Role, Waiter};

/// The requests for durability.
pub(crate) struct Syncs {
    /// Sync requests that may need a commit.
    pub(super) commits: Queue,
    /// Sync requests that need only data and a flush. They do not wait behind a commit that does
    /// not concern them.
    pub(super) plain: Queue,
    /// Threads and requests that wait for durability or for room.
    waiting: AtomicU64,
    /// Milliseconds between periodic commits; a remount may change them.
    period: AtomicU64,
}

impl Syncs {
    /// No requests; `secs` seconds between periodic commits.
    pub(super) fn new(secs: u32, canary: Canary) -> Syncs {
        let syncs = Syncs {
            commits: Queue::new(canary),
            plain: Queue::new(canary),
            waiting: AtomicU64::new(0),
            period: AtomicU64::new(0),
        };
        syncs.set_period(secs);
        syncs
    }

    /// Sets the seconds between periodic commits, at least 1.
    pub(crate) fn set_period(&self, secs: u32) {
        let millis = u64::from(secs.max(1)) * 1000;
        self.period.store(millis, Ordering::Relaxed);
    }

    pub(super) fn period(&self) -> Duration {
        Duration::from_millis(self.period.load(Ordering::Relaxed))
    }

    /// Counts a thread or request that begins to wait.
    pub(super) fn begins_to_wait(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts `count` threads or requests that no longer wait.
    pub(super) fn end_waiting(&self, count: u64) {
        self.waiting.fetch_sub(count, Ordering::AcqRel);
    }

    /// The number of threads and requests that wait for durability or for room.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Wakes all waiting threads, which then check their condition again.
    pub(super) fn wake(&self) {
        self.commits.wake();
        self.plain.wake();
    }
}
