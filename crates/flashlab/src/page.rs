//! The page: the unit of traces, caches and devices.

/// Bytes of a page.
pub const PAGE: u64 = stetfs_flash::ftl::PAGE;
