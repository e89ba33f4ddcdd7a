//! The common interface of maps: lookup results, and the trait `EditMap` for changes. `extents` and
//! `blockmap` are the two kinds of map.

use std::ops::Range;

use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END};

use crate::error::Result;
use stetfs_ondisk::num::bounded32;

/// The result of looking up a file block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This extent covers it.
    Extent(Extent),
    /// A hole up to (not including) this file block, or longer: the caller looks up that block
    /// next.
    Hole(u64),
}

/// The result of one step of unmapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// This extent is unmapped now; the caller frees its blocks.
    Extent(Extent),
    /// An empty block of the map was freed.
    Node,
    /// Nothing: no block in the range is mapped.
    Nothing,
}

/// The first extent that ends behind file block `from`, found by lookups of single blocks.
pub(crate) fn first_from(find: impl Fn(u32) -> Result<Found>, from: u64) -> Result<Option<Extent>> {
    let mut at = from;
    while at < LOGICAL_END {
        match find(bounded32(at))? {
            Found::Extent(e) => return Ok(Some(e)),
            // It moves forwards in any case, so the loop ends.
            Found::Hole(next) => at = next.max(at + 1),
        }
    }
    Ok(None)
}

/// A file's map, open for changing. Each call changes one path from the inode to a leaf. The caller
/// puts the inode into the journal afterwards, whatever the result.
pub(crate) trait EditMap {
    /// Maps `new`, where nothing is mapped yet.
    ///
    /// # Errors
    /// ENOSPC when a node had to be allocated: nothing is mapped then. EUCLEAN if the place is
    /// taken.
    fn insert(&mut self, new: Extent) -> Result<()>;

    /// Unmaps the last mapped piece of `range`, or the last `most` blocks of a longer piece.
    ///
    /// # Errors
    /// ENOSPC when a piece had to be split in two and a node allocated for that.
    fn remove_last(&mut self, range: &Range<u64>, most: u32) -> Result<Removed>;

    /// Makes mapped blocks at the beginning of `range` unwritten, or written. Changes one extent at
    /// most, and returns the file block up to which the range is done.
    ///
    /// # Errors
    /// ENOSPC when extents had to be split and a node allocated for that; EOPNOTSUPP where nothing
    /// can be unwritten.
    fn convert_first(&mut self, range: &Range<u64>, unwritten: bool) -> Result<u64>;
}
