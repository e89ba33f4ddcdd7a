//! Block maps: how files without extents, as those of ext2 and ext3, are mapped.
//!
//! `lookup` walks, `all` lists, `edit` changes. Both work over the small traits [`Indirect`] and
//! [`IndirectMut`]; `store` implements them with cache, journal and allocator.
//!
//! Invariants after each public call, also one that failed for lack of space:
//! * **blockmap.B1** No block number of a path appears in it twice: a map that leads back into
//!   itself is damage, told before anything is read as data or freed.
//! * **blockmap.B2** An indirect block that names nothing is freed with the last number taken out
//!   of it.

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
