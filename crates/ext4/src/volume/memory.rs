//! The journal's share of a volume's memory.

use stetfs_journal::MOST_MEMORY;

/// The least memory for transactions and for images that wait for a checkpoint, however small the
/// cache, bytes.
const JOURNAL_MEMORY: u64 = 16 << 20;

/// The memory that the journal may use with a cache of `cache_bytes`, bytes.
pub(crate) fn journal_memory(cache_bytes: u64) -> u64 {
    (cache_bytes / 2).clamp(JOURNAL_MEMORY, MOST_MEMORY)
}
