//! FAB: evicts the whole erase block that has the most blocks in the cache (Jo, Kang, Park, Kim and
//! Lee, 2006).
//!
//! Of equally full ones it evicts the least recently used.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::blocks::Content;
use super::{Access, Choice, Frame, Policy};

#[derive(Clone, Copy)]
struct Group {
    pages: u32,
    /// The time of the last use of one of its blocks.
    stamp: u64,
}

/// The FAB policy.
pub(super) struct Fab {
    content: Content,
    groups: HashMap<u64, Group>,
    /// Sorted by fullness, the fullest last; of equally full ones the least recently used last.
    order: BTreeSet<(u32, Reverse<u64>, u64)>,
    now: u64,
}

impl Fab {
    /// A policy for erase blocks of `size` blocks.
    pub(super) fn new(size: u64) -> Fab {
        Fab {
            content: Content::new(size),
            groups: HashMap::new(),
            order: BTreeSet::new(),
            now: 0,
        }
    }

    /// Changes the number of cached blocks of an erase block by `change`, and counts a use if
    /// `used`.
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
        self.content.insert(frame, access);
        self.touch(self.content.block_of(frame), 1, true);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.content.used(frame, access);
        self.touch(self.content.block_of(frame), 0, true);
    }

    fn written(&mut self, frame: Frame) {
        self.content.written(frame);
    }

    fn removed(&mut self, frame: Frame) {
        if self.content.remove(frame.nr) {
            self.touch(self.content.block_of(frame), -1, false);
        }
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let blocks = self.order.iter().rev().map(|(_, _, block)| *block);
        self.content.choose(blocks, may_go, choice);
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let blocks = self.order.iter().rev().map(|(_, _, block)| *block);
        self.content.to_write(blocks, limit, out);
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
        // Blocks 0 and 2 have two each after 8 came; 0 was used less recently, though 9 was before
        // 1.
        desk.run("w8 w21 r40");
        assert_eq!(desk.gone(), [4, 5, 6, 0, 1]);
    }
}
