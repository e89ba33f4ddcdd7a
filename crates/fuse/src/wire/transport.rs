//! By which way requests come.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;

/// Threads of each of `queues`, where `n` are wanted in all: one serves while another waits.
pub(super) fn per_queue(n: usize, queues: usize) -> usize {
    n.div_ceil(queues).max(2)
}

/// The way that requests come, as of now: `/dev/fuse` at first.
#[derive(Debug, Default)]
pub(crate) struct Transport {
    /// Of io_uring; 0: by `/dev/fuse`.
    queues: AtomicU16,
    refused: Mutex<Option<String>>,
}

impl Transport {
    /// Queues of io_uring, or 0.
    pub(crate) fn queues(&self) -> u16 {
        self.queues.load(Ordering::Relaxed)
    }

    /// Threads that take requests, of which `n` are wanted.
    pub(crate) fn threads(&self, n: usize) -> usize {
        match usize::from(self.queues()) {
            0 => n,
            queues => queues * per_queue(n, queues) + 1,
        }
    }

    /// Why it is not io_uring, though that was asked for and offered.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    pub(super) fn by_rings(&self, queues: u16) {
        self.queues.store(queues, Ordering::Relaxed);
    }

    /// Rings were refused.
    pub(super) fn by_device(&self, why: &io::Error) {
        let mut refused = self.refused.lock();
        if refused.is_none() {
            tracing::info!("requests come by /dev/fuse, not by io_uring: {why}");
            *refused = Some(why.to_string());
        }
        self.queues.store(0, Ordering::Relaxed);
    }
}
