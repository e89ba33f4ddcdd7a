//! The maps of files: from file blocks to blocks of the volume, and the space for them.
//!
//! `extents` and `blockmap` are the two kinds of map, behind `mapping`; `map` is the map of a file;
//! `clusters` allocates for it; `migrate` changes its kind; `once` checks that no block is mapped
//! twice.

pub(crate) mod blockmap;
pub(crate) mod clusters;
pub(crate) mod credits;
pub(crate) mod extents;
pub(crate) mod map;
pub(in crate::data) mod mapping;
pub(crate) mod migrate;
#[cfg(test)]
mod migrate_tests;
pub(crate) mod nodes;
pub(crate) mod once;
