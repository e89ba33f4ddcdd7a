//! Bounds on the size of a transaction, set by the ring and by memory.

use crate::error::{JournalError, Result};
use crate::policy::{Codec, Medium};
use stetfs_ondisk::OnDiskError;

/// Log blocks kept free beyond what transactions are known to need: revokes are not counted in
/// credits.
pub(crate) const SLACK: u64 = 8;

/// The least number of blocks that every transaction may hold.
const LEAST_TX: u64 = 8;

/// The most blocks one transaction may hold: a quarter of its ring (jbd2:
/// `j_max_transaction_buffers`) less what the log needs around the images, and a quarter of
/// the memory. The ring has `ring` blocks of `block_size` bytes; `memory` is in bytes.
pub(crate) fn max_tx(codec: &dyn Codec, ring: u64, memory: u64, block_size: u64) -> u64 {
    let blocks = most_blocks(codec, ring);
    let memory = memory / 4 / block_size;
    blocks.min(memory.max(64)).max(LEAST_TX)
}

/// The most blocks that a transaction in a ring of `ring` log blocks may hold, by the ring alone.
pub(crate) fn most_blocks(codec: &dyn Codec, ring: u64) -> u64 {
    codec.most_images(ring, SLACK)
}

/// Checks that each ring holds the smallest transaction (room.W1).
///
/// # Errors
/// `Unsupported` if a ring is too small.
pub(crate) fn check_rings(codec: &dyn Codec, media: &[Box<dyn Medium>]) -> Result<()> {
    let least = codec.bound(LEAST_TX, 0) + SLACK;
    let capacity = media.iter().map(|medium| medium.capacity()).min();
    match capacity.filter(|capacity| *capacity < least) {
        None => Ok(()),
        Some(capacity) => Err(JournalError::from(OnDiskError::Unsupported {
            feature: format!(
                "the journal has {capacity} blocks per lane and needs {least}: make it larger \
                 (tune2fs -J size=)"
            ),
        })),
    }
}
