//! The transport by which requests come.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;

/// Threads per queue, for `n` wanted threads in all: at least two, as one serves while another
/// waits.
pub(crate) fn per_queue(n: usize, queues: usize) -> usize {
    n.div_ceil(queues).max(2)
}

/// The current transport: `/dev/fuse` at first.
#[derive(Debug, Default)]
pub(crate) struct Transport {
    /// Number of io_uring queues; 0 means `/dev/fuse`.
    queues: AtomicU16,
    refused: Mutex<Option<String>>,
}

impl Transport {
    /// Number of io_uring queues, or 0.
    pub(crate) fn queues(&self) -> u16 {
        self.queues.load(Ordering::Relaxed)
    }

    /// Number of threads that take requests, for `n` wanted ones.
    pub(crate) fn threads(&self, n: usize) -> usize {
        match usize::from(self.queues()) {
            0 => n,
            queues => queues * per_queue(n, queues) + 1,
        }
    }

    /// The reason why it is not io_uring, if that was requested and offered.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    pub(crate) fn by_rings(&self, queues: u16) {
        self.queues.store(queues, Ordering::Relaxed);
    }

    /// Records that the kernel refused rings.
    pub(crate) fn by_device(&self, why: &io::Error) {
        let mut refused = self.refused.lock();
        if refused.is_none() {
            tracing::info!("requests come by /dev/fuse, not by io_uring: {why}");
            *refused = Some(why.to_string());
        }
        self.queues.store(0, Ordering::Relaxed);
    }
}
