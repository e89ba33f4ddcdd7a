//! Block groups: allocation of blocks and inodes.
//!
//! Each group's descriptor, search hints and reservations are behind the group's lock
//! (`Rank::Group`); its bitmaps are cache blocks that change through the journal under that lock.
//!
//! Invariants:
//! * **space.S1** A group's in-memory descriptor equals its bytes in the descriptor block, and its
//!   free counts equal the clear bits of its bitmaps.
//! * **space.S2** A block or inode freed by a transaction that is not yet valid is clear in the
//!   bitmap and set in the group's *pending* overlay, and so is a block that is set aside;
//!   searches take neither.
//! * **space.S3** A group's `available` is its free blocks less the pending ones.
//! * **space.S4** No free run of a group is longer than its `longest`, and none begins before its
//!   `first_free`. Searches that find less lower the one and raise the other; what becomes free
//!   does the opposite. The summary holds the smaller of `longest` and `available` of each group.
//! * **space.S5** A group's bitmap and the block of its descriptor were read before either
//!   changes. So a read that fails leaves nothing half done.

use crate::types::BlockNr;

/// Blocks that follow each other on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// First block.
    pub(crate) start: BlockNr,
    /// How many.
    pub(crate) len: u32,
}

impl BlockRun {
    /// The block behind the run.
    pub(crate) fn end(&self) -> BlockNr {
        self.start.saturating_add(u64::from(self.len))
    }
}

/// What blocks are allocated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocFor {
    /// File data: sets blocks behind it aside for the same file.
    Data,
    /// Directory blocks, extent tree nodes, attribute blocks.
    Meta,
    /// File data that no transaction has yet: no bitmap tells of it (`space/aside`).
    Later,
}

/// What kind of blocks is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// Never went through the journal.
    Data,
    /// Went through the journal: metadata, journaled data. Its log images are revoked.
    Journaled,
}

mod alloc;
mod allocator;
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
mod scan;
mod summary;
#[cfg(test)]
mod tests;
mod trim;
mod window;
mod zones;

pub(crate) use allocator::Allocator;
pub(crate) use group::Groups;
pub(crate) use reserve::Reservation;
pub(crate) use window::Window;
pub(crate) use zones::Zones;

/// Handle credits that the calls of this module use; a block that several calls touch counts once.
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
