//! Block groups: allocation of blocks and inodes.
//!
//! Each group's descriptor, search hints and reservations are behind the group's lock
//! (`Rank::Group`); its bitmaps are cache blocks that change through the journal under that lock.
//!
//! Invariants:
//! * **space.S1** A group's in-memory descriptor equals its bytes in the descriptor block, and its
//!   free counts equal the clear bits of its bitmaps.
//! * **space.S2** A block or inode freed by a transaction that is not yet valid is clear in the
//!   bitmap and set in the group's *pending* overlay, and so is a block that is set aside; searches
//!   take neither.
//! * **space.S3** A group's `available` is its free blocks less the pending ones.
//! * **space.S4** No free run of a group is longer than its `longest`, and none begins before its
//!   `first_free`. A search that finds less lowers `longest` and raises `first_free`; space that
//!   becomes free does the opposite. The summary holds the smaller of `longest` and `available` of
//!   each group.
//! * **space.S5** A group's bitmap and the block of its descriptor are read before either changes.
//!   So a failed read leaves no change half done.

use crate::types::BlockNr;

/// A run of consecutive blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// First block.
    pub(crate) start: BlockNr,
    /// Number of blocks.
    pub(crate) len: u32,
}

impl BlockRun {
    /// The block behind the run.
    pub(crate) fn end(&self) -> BlockNr {
        self.start.saturating_add(u64::from(self.len))
    }
}

/// The purpose of allocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocFor {
    /// File data: sets blocks behind it aside for the same file.
    Data,
    /// Directory blocks, extent tree nodes, attribute blocks.
    Meta,
    /// File data that no transaction contains yet: no bitmap shows it (`space/aside`).
    Later,
}

/// The kind of freed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// Blocks that never went through the journal.
    Data,
    /// Blocks that went through the journal: metadata, journaled data. Their log images are
    /// revoked.
    Journaled,
}

mod alloc;
pub(crate) mod allocator;
mod aside;
mod bitmaps;
mod claims;
mod desc;
mod discard;
mod free;
mod group;
mod held;
mod inodes;
mod parts;
mod promises;
mod redo;
mod reserve;
pub(crate) mod scan;
mod summary;
#[cfg(test)]
mod tests;
mod trim;
mod window;
mod zones;

pub(crate) use allocator::Allocator;
pub(crate) use group::Groups;
pub(crate) use reserve::Reservation;

pub(crate) use zones::Zones;

/// Handle credits of the calls in this module. A block that several calls touch counts once.
pub(crate) mod credits {
    use stetfs_journal::Credits;

    /// One `alloc_blocks`: block bitmap, descriptor.
    pub(crate) const ALLOC_BLOCKS: Credits = 2;
    /// One `free_blocks` inside one group: block bitmap, descriptor.
    pub(crate) const FREE_BLOCKS: Credits = 2;
    /// One `new_inode`: inode bitmap, descriptor, block bitmap of a fresh group, inode table block.
    pub(crate) const NEW_INODE: Credits = 4;
    /// One `write_inode`: inode table block.
    pub(crate) const WRITE_INODE: Credits = 1;
    /// One `orphan_add` or `orphan_del`: superblock or orphan-file block, and two inode table
    /// blocks.
    pub(crate) const ORPHAN: Credits = 3;
    /// Freeing an inode: inode bitmap, descriptor, inode table block.
    pub(crate) const FREE_INODE: Credits = 3;
}
