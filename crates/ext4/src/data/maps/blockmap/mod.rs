//! Block maps: the mapping of files without extents, as in ext2 and ext3.
//!
//! `lookup` searches, `all` lists, `edit` changes. They work over the small traits [`Indirect`] and
//! [`IndirectMut`]; `store` implements these with cache, journal and allocator.
//!
//! Invariants after each public call, also after one that failed for lack of space:
//! * **blockmap.B1** No block number of a path appears in it twice: a map that leads back to itself
//!   is damage, which is reported before anything is read as data or freed.
//! * **blockmap.B2** An indirect block that names nothing is freed with the last number removed
//!   from it.

mod all;
mod edit;
mod lookup;
mod store;

#[cfg(test)]
mod model;

pub(crate) use all::{Named, all};
pub(crate) use edit::BlockMap;
pub(crate) use lookup::{Indirect, find};
pub(crate) use store::{Changing, EDIT_CREDITS, Stored, node_space};
