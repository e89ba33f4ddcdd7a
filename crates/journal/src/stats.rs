//! Counters and times of a journal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stetfs_block::{Histogram, Latency};
use stetfs_sync::plain::Instant;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the journal was started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct JournalStats { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64,)* }

        impl Counters {
            pub(crate) fn read(&self) -> JournalStats {
                JournalStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Transactions committed.
    commits,
    /// Syncs answered without a commit of their own (data only, or by a shared commit).
    plain_syncs,
    /// Syncs requested.
    syncs,
    /// Log blocks written.
    blocks_logged,
    /// Bytes written to the log.
    bytes_logged,
    /// Bytes of images in the log, before packing.
    bytes_packed,
    /// Chunks of images stored as they are, by schemes that pack.
    chunks_raw,
    /// Chunks stored as LZ4.
    chunks_lz4,
    /// Chunks stored as Zstandard.
    chunks_zstd,
    /// Processor time of packing, microseconds.
    packing_micros,
    /// Images that checkpoints had the device share to their homes.
    shared,
    /// Images that checkpoints wrote home.
    copied,
    /// Bytes written home by checkpoints.
    bytes_home,
    /// Checkpoint rounds.
    checkpoints,
    /// Checkpoint rounds that a caller waited for.
    forced_checkpoints,
    /// Edges of committed transactions to transactions of other lanes.
    edges,
    /// Handles that joined a lane other than their thread's, whose log was full.
    borrowed,
    /// Times a handle waited for a transaction to be locked and its snapshot taken.
    waits_locked,
    /// Nanoseconds of those waits.
    waiting_locked_nanos,
    /// Times a handle waited for room in the transaction, the log or memory.
    waits_room,
    /// Nanoseconds of those waits.
    waiting_room_nanos,
    /// Pages copied by the thread that changed them, because a snapshot still held them.
    copies,
    /// Bytes of those copies.
    copies_bytes,
    /// Nanoseconds of those copies.
    copying_nanos,
    /// Pages copied by commits in advance (`copies=proactive`).
    copies_ahead,
    /// Bytes of those copies.
    copies_ahead_bytes,
    /// Nanoseconds of those copies.
    copying_ahead_nanos,
    /// Blocks revoked in the log.
    revokes,
    /// Microseconds spent in commits, from lock to durable.
    commit_micros,
    /// Records of files written.
    file_records,
    /// Data blocks in those records.
    file_pages,
    /// Bytes of those records in the log.
    file_bytes,
    /// Flushes by the threads that sync files.
    file_flushes,
}

/// The times of a journal's own work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalLatency {
    /// Commits, from lock to durable, without those that found nothing to commit.
    pub commit: Latency,
    /// Checkpoint rounds, without the pauses between their steps.
    pub checkpoint: Latency,
}

/// The histograms behind [`JournalLatency`].
#[derive(Default)]
pub(crate) struct Times {
    pub commit: Histogram,
    pub checkpoint: Histogram,
}

impl Times {
    pub(crate) fn read(&self) -> JournalLatency {
        JournalLatency {
            commit: self.commit.snapshot(),
            checkpoint: self.checkpoint.snapshot(),
        }
    }
}

/// Adds the nanoseconds since `begun`.
pub(crate) fn add_time(counter: &AtomicU64, begun: Instant) {
    bump(counter, nanos(begun.elapsed()));
}

/// A time in nanoseconds; `u64::MAX` for times above some 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time in microseconds; `u64::MAX` if there are more.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
