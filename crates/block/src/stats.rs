//! Request counters of a device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::SharePair;

/// The requests that a device completed since it was opened, and the bytes that they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Read requests; a gathered request counts once.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write requests; a gathered request counts once.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// SHARE batches.
    pub shares: u64,
    /// Bytes changed by SHARE batches.
    pub bytes_shared: u64,
}

impl Stats {
    /// The requests after `earlier` was taken.
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            reads: self.reads.saturating_sub(earlier.reads),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            writes: self.writes.saturating_sub(earlier.writes),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.saturating_sub(earlier.discards),
            bytes_discarded: self.bytes_discarded.saturating_sub(earlier.bytes_discarded),
            shares: self.shares.saturating_sub(earlier.shares),
            bytes_shared: self.bytes_shared.saturating_sub(earlier.bytes_shared),
        }
    }
}

/// The counters behind [`Stats`], for implementations of devices.
#[derive(Debug, Default)]
pub struct Counters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    bytes_discarded: AtomicU64,
    shares: AtomicU64,
    bytes_shared: AtomicU64,
}

impl Counters {
    /// Counts `requests` reads of `bytes` in all.
    pub fn read(&self, requests: u64, bytes: u64) {
        self.reads.fetch_add(requests, Relaxed);
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    /// Counts `requests` writes of `bytes` in all.
    pub fn write(&self, requests: u64, bytes: u64) {
        self.writes.fetch_add(requests, Relaxed);
        self.bytes_written.fetch_add(bytes, Relaxed);
    }

    /// Counts a flush.
    pub fn flush(&self) {
        self.flushes.fetch_add(1, Relaxed);
    }

    /// Counts a discard of `bytes`.
    pub fn discard(&self, bytes: u64) {
        self.discards.fetch_add(1, Relaxed);
        self.bytes_discarded.fetch_add(bytes, Relaxed);
    }

    /// Counts a SHARE batch.
    pub fn share(&self, pairs: &[SharePair]) {
        self.shares.fetch_add(1, Relaxed);
        let bytes = pairs.iter().map(|p| p.len).sum();
        self.bytes_shared.fetch_add(bytes, Relaxed);
    }

    /// The current numbers. Concurrent requests may be half included.
    pub fn snapshot(&self) -> Stats {
        Stats {
            reads: self.reads.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            bytes_discarded: self.bytes_discarded.load(Relaxed),
            shares: self.shares.load(Relaxed),
            bytes_shared: self.bytes_shared.load(Relaxed),
        }
    }
}
