//! FAB: the erase block with the most blocks in the cache leaves as a whole (Jo, Kang, Park, Kim and Lee, 2006).
//!
//! Of equally full ones the least recently used leaves.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::blocks::{EraseBlocks, Sorted};
use super::lists::PerSlot;
use super::{Access, Choice, Frame, Patience, Policy};

#[derive(Clone, Copy)]
struct Group {
    pages: u32,
    /// When one of its blocks was last used.
    stamp: u64,
}

/// The FAB policy.
pub(super) struct Fab {
    erase: EraseBlocks,
    groups: HashMap<u64, Group>,
    /// The fullest last, of equally full ones the least recently used.
    order: BTreeSet<(u32, Reverse<u64>, u64)>,
    pages: Sorted,
    dirty: PerSlot<bool>,
    now: u64,
}

impl Fab {
    /// With erase blocks of `size` blocks.
    pub(super) fn new(size: u64) -> Fab {
        Fab {
            erase: EraseBlocks { size },
            groups: HashMap::new(),
            order: BTreeSet::new(),
            pages: Sorted::default(),
            dirty: PerSlot::new(),
            now: 0,
        }
    }

    /// Counts a use of erase block `block` that has `more` blocks now, or fewer.
    fn touch(&mut self, block: u64, change: i32, used: bool) {
        self.now += 1;
        let group = self.groups.entry(block).or_insert(Group {
            pages: 0,
            stamp: self.now,
        });
        self.order
            .remove(&(group.pages, Reverse(group.stamp), block));
        group.pages = group.pages.saturating_add_signed(change);
        if used {
            group.stamp = self.now;
        }
        if group.pages == 0 {
            self.groups.remove(&block);
        } else {
            self.order
                .insert((group.pages, Reverse(group.stamp), block));
        }
    }
}

impl Policy for Fab {
    fn inserted(&mut self, frame: Frame, access: Access) {
        self.pages.insert(frame.nr, frame.slot);
        *self.dirty.at(frame.slot) = access == Access::Write;
        self.touch(self.erase.of(frame.nr), 1, true);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        *self.dirty.at(frame.slot) |= access == Access::Write;
        self.touch(self.erase.of(frame.nr), 0, true);
    }

    fn written(&mut self, frame: Frame) {
        *self.dirty.at(frame.slot) = false;
    }

    fn removed(&mut self, frame: Frame) {
        if self.pages.remove(frame.nr) {
            self.touch(self.erase.of(frame.nr), -1, false);
        }
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let mut patience = Patience::new();
        for (_, _, block) in self.order.iter().rev() {
            for (_, slot) in self.pages.iter(self.erase.range(*block)) {
                if may_go(slot) {
                    choice.evict.push(slot);
                } else {
                    if self.dirty.get(slot) {
                        choice.write.push(slot);
                    }
                    if !patience.pinned() {
                        return;
                    }
                }
            }
            if !choice.evict.is_empty() {
                return;
            }
        }
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let blocks = self.order.iter().rev();
        let slots = blocks.flat_map(|(_, _, block)| self.pages.iter(self.erase.range(*block)));
        super::dirty_of(
            slots.map(|(_, slot)| slot),
            limit,
            |slot| self.dirty.get(slot),
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// Worked by hand from the description, erase blocks of 4.
    #[test]
    fn the_fullest_erase_block_leaves_whole_and_in_order() {
        let mut desk = Desk::new(Fab::new(4), 6);
        desk.run("w0 w9 w6 w4 r5 w1 r20");
        // Erase block 1 holds 4, 5 and 6.
        assert_eq!(desk.gone(), [4, 5, 6]);
        assert_eq!(desk.written(), [4, 6]);
        // Blocks 0 and 2 have two each after 8 came; 0 was used less recently, though 9 was before 1.
        desk.run("w8 w21 r40");
        assert_eq!(desk.gone(), [4, 5, 6, 0, 1]);
    }
}
