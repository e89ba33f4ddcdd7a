//! A lane of transactions: its ring in the log, and the transaction that runs in it.

use std::sync::Arc;

use stetfs_ondisk::OnDiskError;
use stetfs_sync::plain::atomic::{AtomicU64, Ordering};
use stetfs_sync::plain::{Condvar, Mutex};

use crate::error::Result;
use crate::ids::{Lane, TxId};
use crate::policy::{Codec, Medium};
use crate::tx::Tx;

/// Log blocks kept free beyond what transactions are known to need: revokes are not counted in
/// credits.
pub(super) const SLACK: u64 = 8;

/// Blocks that a transaction may hold, at least.
pub(super) const LEAST_TX: u64 = 8;

/// Sees to it that each ring holds the smallest transaction (room.W1).
///
/// # Errors
/// `Unsupported`: one does not.
pub(super) fn check_rings(codec: &dyn Codec, lanes: &[LaneState]) -> Result<()> {
    let least = codec.bound(LEAST_TX, 0) + SLACK;
    let capacity = lanes.iter().map(|lane| lane.medium.capacity()).min();
    match capacity.filter(|capacity| *capacity < least) {
        None => Ok(()),
        Some(capacity) => Err(OnDiskError::Unsupported {
            feature: format!(
                "a journal with {capacity} blocks for a lane, where {least} are needed"
            ),
        }
        .into()),
    }
}

/// The running transaction of a lane.
pub(crate) struct Run {
    pub tx: Arc<Tx>,
    /// No new handles until the snapshot is taken (tx.T1).
    pub locked: bool,
}

/// A lane. What the live part of its ring holds is in [`LaneLog`](super::checkpoint_list::LaneLog),
/// under the one lock of the checkpoint list.
pub(crate) struct LaneState {
    pub lane: Lane,
    /// Its ring.
    pub medium: Box<dyn Medium>,
    pub run: Mutex<Run>,
    /// Signalled when a snapshot was taken or room was made.
    pub changed: Condvar,
    /// Free log blocks, after reservations of committing transactions.
    pub free: AtomicU64,
    /// Newest valid sequence.
    pub valid: AtomicU64,
}

impl LaneState {
    pub(super) fn new(lane: Lane, medium: Box<dyn Medium>) -> LaneState {
        let seq = medium.tail().seq;
        LaneState {
            lane,
            run: Mutex::new(Run {
                tx: Arc::new(Tx::new(TxId { lane, seq })),
                locked: false,
            }),
            changed: Condvar::new(),
            free: AtomicU64::new(medium.capacity()),
            valid: AtomicU64::new(seq.saturating_sub(1)),
            medium,
        }
    }

    /// Free log blocks now.
    pub(crate) fn room(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    /// Whether the log needs a checkpoint.
    pub(super) fn is_half_full(&self) -> bool {
        self.free.load(Ordering::Relaxed) * 2 < self.medium.capacity()
    }

    /// Wakes handles that wait for the lane.
    pub(crate) fn wake(&self) {
        let _run = self.run.lock();
        self.changed.notify_all();
    }
}
