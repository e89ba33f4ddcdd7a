//! Extended attributes, in the inode and in a block of their own ("Extended Attributes" in the ext4
//! documentation).
//!
//! Both forms hold a list of entries (header, name) that grows upwards and ends with four zero
//! bytes, and values that lie at the end. In the inode, the part behind `i_extra_isize` starts with
//! a magic number, and value offsets count from behind it; a block has a 32-byte header, and
//! offsets count from its start. Attributes are read in place. A change lays out the whole set
//! anew.

mod attr;
mod hash;
mod name;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use attr::{
    Attr, NAME_MAX, VALUE_MAX, Value, block_reserve, block_room, inode_room, large_value, space,
    values_space,
};
pub use hash::{
    block_checksum, entry_hash, is_value_entry_hash, update_block_checksum, value_entry_hash,
    value_hash, verify_block_checksum,
};
pub use name::{full_name, index, split_name};
pub use read::{Attrs, BlockHeader};
pub use write::{REFCOUNT_MAX, set_refcount, write_block, write_in_inode};
