//! `Allocator`: the store of free space and free inodes.

use std::sync::{Arc, Weak};

use stetfs_sync::timed::atomic::{AtomicU32, Ordering};

use super::group::Groups;
use crate::volume::Volume;

/// Allocates the volume's blocks and inode numbers, and frees them.
pub(crate) struct Allocator {
    pub(super) vol: Arc<Volume>,
    /// Block groups: descriptors, bitmaps, promises of space.
    pub(super) groups: Groups,
    /// Source of generation numbers.
    generation: AtomicU32,
    /// A reference to itself, for callbacks after a commit.
    pub(super) me: Weak<Allocator>,
}

impl Allocator {
    /// An allocator over the groups of a volume. Generations of new inodes are derived from
    /// `generation`.
    pub(crate) fn new(vol: Arc<Volume>, groups: Groups, generation: u32) -> Arc<Allocator> {
        Arc::new_cyclic(|me| Allocator {
            vol,
            groups,
            generation: AtomicU32::new(generation),
            me: me.clone(),
        })
    }

    /// Free clusters (blocks, without `bigalloc`), including those that wait for a commit.
    pub(crate) fn free_blocks_count(&self) -> u64 {
        self.groups.free_blocks()
    }

    /// The cost of all searches so far: groups and bitmap words examined.
    pub(crate) fn search_cost(&self) -> (u64, u64) {
        self.groups.cost.so_far()
    }

    /// Free inodes.
    pub(crate) fn free_inodes_count(&self) -> u64 {
        self.groups.free_inodes()
    }

    /// A number that differs from recent ones, for generations and for the start of a spread
    /// search.
    pub(super) fn next_generation(&self) -> u32 {
        // An odd multiplier reaches every number, and consecutive numbers look unrelated.
        self.generation
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B1)
    }
}
