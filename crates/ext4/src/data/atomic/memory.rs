//! What all groups together keep in memory.

use std::sync::atomic::AtomicU64;

/// Bytes that groups keep in memory.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory(pub(super) AtomicU64);
