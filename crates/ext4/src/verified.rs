//! Codes for `Block::set_verified`: which check a cached block has passed since it was read. Each
//! structure has its own code, so that a block that two owners claim is checked for each of them.

/// Entries of a directory.
pub(crate) const DIR_LEAF: u8 = 0x20;
/// Root of a directory's index.
pub(crate) const DIR_ROOT: u8 = 0x21;
/// Inner node of a directory's index.
pub(crate) const DIR_NODE: u8 = 0x22;
/// Extended attributes.
pub(crate) const XATTR: u8 = 0x23;
/// Node of an extent tree.
pub(crate) const EXTENT_NODE: u8 = 0x24;
