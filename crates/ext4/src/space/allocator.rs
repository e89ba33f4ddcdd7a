//! The store of free space and free inodes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::group::Groups;
use crate::volume::Volume;

/// Gives out the volume's blocks and inode numbers, and takes them back.
pub(crate) struct Allocator {
    pub(super) vol: Arc<Volume>,
    /// Block groups: descriptors, bitmaps, what is promised.
    pub(super) groups: Groups,
    /// Where the next generation number comes from.
    generation: AtomicU32,
    /// Ourselves, for what is told after a commit.
    pub(super) me: Weak<Allocator>,
}

impl Allocator {
    /// Over the groups of a volume. Generations of new inodes begin with `generation`.
    pub(crate) fn new(vol: Arc<Volume>, groups: Groups, generation: u32) -> Arc<Allocator> {
        Arc::new_cyclic(|me| Allocator {
            vol,
            groups,
            generation: AtomicU32::new(generation),
            me: me.clone(),
        })
    }

    /// Free clusters (blocks, without `bigalloc`), those that wait for a commit included.
    pub(crate) fn free_blocks_count(&self) -> u64 {
        self.groups.free_blocks()
    }

    /// What searches cost so far: groups and words looked at.
    pub(crate) fn search_cost(&self) -> (u64, u64) {
        self.groups.cost.so_far()
    }

    /// Free inodes.
    pub(crate) fn free_inodes_count(&self) -> u64 {
        self.groups.free_inodes()
    }

    /// A number that differs from the last ones: generations, and where spreading begins.
    pub(super) fn next_generation(&self) -> u32 {
        // An odd multiplier walks through all numbers; consecutive ones look unrelated.
        self.generation
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B1)
    }
}
