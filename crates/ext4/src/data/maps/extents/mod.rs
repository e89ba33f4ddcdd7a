//! Extent trees: the mapping of file blocks to blocks of the volume.
//!
//! `tree` searches and reshapes, `edit` inserts, removes and converts. They work over the small
//! traits [`Nodes`] and [`NodesMut`]; `store` implements these with cache, journal and allocator.

mod edit;
mod extent;
mod store;
mod tree;

#[cfg(test)]
mod model;

pub(crate) use store::{Changing, Stored, edit_blocks, edit_credits};
pub(crate) use tree::{Tree, count_nodes, find};
