//! Bounds of requests and of what the kernel keeps.

/// How long the kernel may keep names and attributes, seconds: the volume is ours alone, so what it
/// knows stays right until a request of its own, or a notification of ours, changes it.
pub(super) const TTL_SECS: u64 = 365 * 24 * 3600;

/// The largest write request, bytes; the kernel's own bound is 256 pages.
pub(super) const MAX_WRITE: u32 = 1 << 20;

/// The longest read a request can ask for, bytes.
pub(super) const MAX_READ: usize = MAX_WRITE as usize;
