//! The requests for durability: queues of those that need a commit, a queue of those that need
//! only data and a flush, and the period of commits.

mod gather;
mod queue;

use std::time::Duration;

use stetfs_sync::plain::atomic::{AtomicU64, Ordering};

use crate::canary::Canary;
use crate::ids::Lane;
pub(super) use queue::{Leader, Queue, Requests, Role, Waiter};

/// The requests for durability.
pub(crate) struct Syncs {
    /// Sync requests that may need a commit: one queue, or one for each lane.
    commits: Vec<Queue>,
    /// Sync requests that need only data and a flush. They do not wait behind a commit that does
    /// not concern them.
    pub(super) plain: Queue,
    /// Threads and requests that wait for durability or for room.
    waiting: AtomicU64,
    /// Milliseconds between periodic commits; a remount may change them.
    period: AtomicU64,
}

impl Syncs {
    /// No requests; `queues` queues of commits, at least one, and `secs` seconds between periodic
    /// commits.
    pub(super) fn new(queues: u16, secs: u32, canary: Canary) -> Syncs {
        let syncs = Syncs {
            commits: (0..queues.max(1)).map(|_| Queue::new(canary)).collect(),
            plain: Queue::new(canary),
            waiting: AtomicU64::new(0),
            period: AtomicU64::new(0),
        };
        syncs.set_period(secs);
        syncs
    }

    /// The number of queues of commits.
    pub(super) fn queues(&self) -> usize {
        self.commits.len()
    }

    /// A queue of commits, by number.
    pub(super) fn commits(&self, queue: usize) -> &Queue {
        // The number is one below `queues`.
        &self.commits[queue.min(self.commits.len() - 1)]
    }

    /// The number of the queue for commits of a lane.
    pub(super) fn queue_of(&self, lane: Lane) -> usize {
        usize::from(lane.0) % self.commits.len()
    }

    /// Whether commits of this lane are asked for in this queue.
    pub(super) fn serves(&self, queue: usize, lane: Lane) -> bool {
        self.queue_of(lane) == queue
    }

    /// Waits until no thread leads a queue of commits, and leads all of them.
    pub(super) fn close_commits(&self) -> Vec<Leader<'_>> {
        self.commits.iter().map(Queue::close).collect()
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
        self.commits.iter().for_each(Queue::wake);
        self.plain.wake();
    }
}
