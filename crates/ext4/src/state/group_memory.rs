//! The memory that all atomic groups use together.

use stetfs_sync::timed::atomic::AtomicU64;

/// Bytes that atomic groups keep in memory.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory(pub(crate) AtomicU64);
