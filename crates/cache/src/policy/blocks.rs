//! Indices of cached blocks by number and by erase block, shared by the policies that need them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::lists::PerSlot;
use super::{Access, Attempts, Choice, Frame, dirty_of};

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

    /// The first block in `range`.
    pub(super) fn first(&self, range: Range<u64>) -> Option<(u64, u32)> {
        self.iter(range).next()
    }

    /// The last block below `nr`.
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

/// The division of a device into erase blocks.
#[derive(Clone, Copy)]
pub(super) struct EraseBlocks {
    /// Blocks per erase block, at least 1.
    pub(super) size: u64,
}

impl EraseBlocks {
    /// The number of the erase block that contains block `nr`.
    pub(super) fn of(self, nr: u64) -> u64 {
        nr / self.size
    }

    /// The block numbers of erase block `block`.
    pub(super) fn range(self, block: u64) -> Range<u64> {
        let start = block.saturating_mul(self.size);
        start..start.saturating_add(self.size)
    }
}

/// The cached blocks, for policies that evict whole erase blocks.
pub(super) struct Content {
    erase: EraseBlocks,
    pages: Sorted,
    dirty: PerSlot<bool>,
}

impl Content {
    /// An empty cache, with erase blocks of `size` blocks.
    pub(super) fn new(size: u64) -> Content {
        Content {
            erase: EraseBlocks { size },
            pages: Sorted::default(),
            dirty: PerSlot::new(),
        }
    }

    /// The number of the erase block that contains a block.
    pub(super) fn block_of(&self, frame: Frame) -> u64 {
        self.erase.of(frame.nr)
    }

    pub(super) fn insert(&mut self, frame: Frame, access: Access) {
        self.pages.insert(frame.nr, frame.slot);
        *self.dirty.at(frame.slot) = access == Access::Write;
    }

    pub(super) fn used(&mut self, frame: Frame, access: Access) {
        *self.dirty.at(frame.slot) |= access == Access::Write;
    }

    pub(super) fn written(&mut self, frame: Frame) {
        *self.dirty.at(frame.slot) = false;
    }

    pub(super) fn remove(&mut self, nr: u64) -> bool {
        self.pages.remove(nr)
    }

    /// Chooses all evictable blocks, by number, of the first erase block that has any.
    pub(super) fn choose(
        &self,
        blocks: impl Iterator<Item = u64>,
        may_go: &mut dyn FnMut(u32) -> bool,
        choice: &mut Choice,
    ) {
        let mut attempts = Attempts::new();
        for block in blocks {
            for (_, slot) in self.pages.iter(self.erase.range(block)) {
                if may_go(slot) {
                    choice.evict.push(slot);
                } else {
                    if self.dirty.get(slot) {
                        choice.write.push(slot);
                    }
                    if !attempts.pinned() {
                        return;
                    }
                }
            }
            if !choice.evict.is_empty() {
                return;
            }
        }
    }

    /// Adds the dirty blocks of these erase blocks for the writer of dirty data.
    pub(super) fn to_write(
        &self,
        blocks: impl Iterator<Item = u64>,
        limit: usize,
        out: &mut Vec<u32>,
    ) {
        let slots = blocks.flat_map(|block| self.pages.iter(self.erase.range(block)));
        let slots = slots.map(|(_, slot)| slot);
        dirty_of(slots, limit, |slot| self.dirty.get(slot), out);
    }
}
