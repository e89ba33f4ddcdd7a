//! Blocks in the order of their numbers, and by erase block.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks by number, with their slots.
#[derive(Default)]
pub(super) struct Sorted(BTreeMap<u64, u32>);

impl Sorted {
    pub(super) fn insert(&mut self, nr: u64, slot: u32) {
        self.0.insert(nr, slot);
    }

    pub(super) fn remove(&mut self, nr: u64) -> bool {
        self.0.remove(&nr).is_some()
    }

    /// The first of `range`.
    pub(super) fn first(&self, range: Range<u64>) -> Option<(u64, u32)> {
        self.iter(range).next()
    }

    /// The last one below `nr`.
    pub(super) fn before(&self, nr: u64) -> Option<(u64, u32)> {
        self.0
            .range(..nr)
            .next_back()
            .map(|(nr, slot)| (*nr, *slot))
    }

    pub(super) fn iter(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.range(range).map(|(nr, slot)| (*nr, *slot))
    }
}

/// The erase blocks of a device.
#[derive(Clone, Copy)]
pub(super) struct EraseBlocks {
    /// Blocks in one, at least 1.
    pub(super) size: u64,
}

impl EraseBlocks {
    /// Which one `nr` is in.
    pub(super) fn of(self, nr: u64) -> u64 {
        nr / self.size
    }

    /// The numbers in erase block `block`.
    pub(super) fn range(self, block: u64) -> Range<u64> {
        let start = block.saturating_mul(self.size);
        start..start.saturating_add(self.size)
    }
}
