//! The unit of all.

/// Bytes of a page.
pub const PAGE: u64 = stetfs_flash::ftl::PAGE;
