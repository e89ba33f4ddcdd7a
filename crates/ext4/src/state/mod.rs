//! State of inodes and stores in memory: plain data, without I/O.

pub(crate) mod body;
pub(crate) mod dir_places;
pub(crate) mod dirty_data;
pub(crate) mod failures;
pub(crate) mod group_memory;
pub(crate) mod inode;
pub(crate) mod orphan_place;
pub(crate) mod read_ahead;
pub(crate) mod tally;
pub(crate) mod window;
