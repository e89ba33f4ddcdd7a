//! Limits of requests and of the kernel's caches.

/// Time in seconds for which the kernel may cache names and attributes. The server has the volume
/// exclusively, so cached data stays valid until a request of the kernel, or a notification,
/// changes it.
pub(crate) const TTL_SECS: u64 = 365 * 24 * 3600;

/// Maximum length of a write request in bytes; the kernel's own limit is 256 pages.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// Maximum length of a read request in bytes.
pub(crate) const MAX_READ: usize = MAX_WRITE as usize;
