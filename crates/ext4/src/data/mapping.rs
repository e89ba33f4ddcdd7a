//! What all ways of mapping a file's blocks have in common: how they are looked things up in, and
//! how they are changed. `extents` and `blockmap` are the two ways.

use std::ops::Range;

use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END};

use crate::error::Result;
use stetfs_ondisk::num::bounded32;

/// What lies at a file block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This extent covers it.
    Extent(Extent),
    /// Nothing up to (not including) this file block, and perhaps beyond: ask again there.
    Hole(u64),
}

/// What a step of unmapping did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// This is mapped no more; its blocks are the caller's to free.
    Extent(Extent),
    /// A block of the map that held nothing was freed.
    Node,
    /// Nothing: no block in the range is mapped.
    Nothing,
}

/// The first extent that ends behind file block `from`, given what finds one file block.
pub(crate) fn first_from(find: impl Fn(u32) -> Result<Found>, from: u64) -> Result<Option<Extent>> {
    let mut at = from;
    while at < LOGICAL_END {
        match find(bounded32(at))? {
            Found::Extent(e) => return Ok(Some(e)),
            // Forwards in any case, so this ends.
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

    /// Unmaps the last piece of `range` that is mapped; of a longer piece the last `most` blocks.
    ///
    /// # Errors
    /// ENOSPC when a piece had to be split in two and a node allocated for that.
    fn remove_last(&mut self, range: &Range<u64>, most: u32) -> Result<Removed>;

    /// Makes what is mapped at the beginning of `range` unwritten, or written. Does one extent at
    /// most and returns the file block up to which the range is done.
    ///
    /// # Errors
    /// ENOSPC when extents had to be split and a node allocated for that; EOPNOTSUPP where nothing
    /// can be unwritten.
    fn convert_first(&mut self, range: &Range<u64>, unwritten: bool) -> Result<u64>;
}
