//! Extent trees: which blocks of the volume hold which blocks of a file.
//!
//! `tree` walks and reshapes, `edit` inserts, removes and converts. Both work over the small
//! traits [`Nodes`] and [`NodesMut`]; `store` implements them with cache, journal and allocator.

mod edit;
mod extent;
mod store;
mod tree;

#[cfg(test)]
mod model;

pub(crate) use store::{Changing, Stored, edit_blocks, edit_credits};
pub(crate) use tree::{Tree, count_nodes, find};
