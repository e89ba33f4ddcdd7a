//! LB-CLOCK: a clock over erase blocks; of those not used lately the fullest is evicted as a whole
//! (Debnath, Subramanya, Du and Lilja, MASCOTS 2009).
//!
//! Each erase block has a recency bit, set by every use. When room is needed the hand clears bits
//! until it finds an erase block whose bit is clear already. All erase blocks with a clear bit are
//! candidates; the one with the most blocks in the cache is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use super::blocks::Content;
use super::{Access, Choice, Frame, Policy};

#[derive(Clone, Copy)]
struct Group {
    pages: u32,
    recent: bool,
    /// Its place in the ring.
    place: u64,
}

/// The LB-CLOCK policy.
pub(super) struct LbClock {
    content: Content,
    groups: HashMap<u64, Group>,
    /// The ring: erase blocks in the order in which they came.
    ring: BTreeMap<u64, u64>,
    /// The place that the hand looks at next.
    hand: u64,
    /// The erase blocks with a clear recency bit, the fullest last; of equally full ones the one
    /// that came first is last.
    candidates: BTreeSet<(u32, Reverse<u64>, u64)>,
    places: u64,
}

impl LbClock {
    /// A policy for erase blocks of `size` blocks.
    pub(super) fn new(size: u64) -> LbClock {
        LbClock {
            content: Content::new(size),
            groups: HashMap::new(),
            ring: BTreeMap::new(),
            hand: 0,
            candidates: BTreeSet::new(),
            places: 0,
        }
    }

    fn used_block(&mut self, block: u64, more: u32) {
        let group = self.groups.entry(block).or_insert_with(|| {
            self.places += 1;
            self.ring.insert(self.places, block);
            Group {
                pages: 0,
                recent: true,
                place: self.places,
            }
        });
        if !group.recent {
            self.candidates
                .remove(&(group.pages, Reverse(group.place), block));
        }
        group.pages += more;
        group.recent = true;
    }

    /// Moves the hand, clearing bits, until it finds a clear one. At most two rounds.
    fn sweep(&mut self) {
        for _ in 0..=self.ring.len() {
            let next = self.ring.range(self.hand..).next();
            let Some((place, block)) = next.or_else(|| self.ring.first_key_value()) else {
                return;
            };
            let (place, block) = (*place, *block);
            let Some(group) = self.groups.get_mut(&block) else {
                return;
            };
            if !group.recent {
                self.hand = place;
                return;
            }
            group.recent = false;
            self.candidates
                .insert((group.pages, Reverse(group.place), block));
            self.hand = place + 1;
        }
    }
}

impl Policy for LbClock {
    fn inserted(&mut self, frame: Frame, access: Access) {
        self.content.insert(frame, access);
        self.used_block(self.content.block_of(frame), 1);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.content.used(frame, access);
        self.used_block(self.content.block_of(frame), 0);
    }

    fn written(&mut self, frame: Frame) {
        self.content.written(frame);
    }

    fn removed(&mut self, frame: Frame) {
        if !self.content.remove(frame.nr) {
            return;
        }
        let block = self.content.block_of(frame);
        let Some(group) = self.groups.get_mut(&block) else {
            return;
        };
        let was = (group.pages, Reverse(group.place), block);
        group.pages -= 1;
        let now = (group.pages, Reverse(group.place), block);
        let candidate = self.candidates.remove(&was);
        if now.0 == 0 {
            self.ring.remove(&group.place);
            self.groups.remove(&block);
        } else if candidate {
            self.candidates.insert(now);
        }
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        self.sweep();
        let blocks = self.candidates.iter().rev().map(|(_, _, block)| *block);
        self.content.choose(blocks, may_go, choice);
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let blocks = self.candidates.iter().rev().map(|(_, _, block)| *block);
        self.content.to_write(blocks, limit, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// Worked by hand from the description, erase blocks of 4.
    #[test]
    fn the_fullest_of_those_not_used_lately_leaves() {
        let mut desk = Desk::new(LbClock::new(4), 6);
        // Blocks 0 (one page), 1 (three), 2 (two), all used lately: the hand clears all, and the
        // fullest leaves.
        desk.run("w0 w4 w5 w6 w8 w9 r20");
        assert_eq!(desk.gone(), [4, 5, 6]);
        // Block 2 is used, so 0 leaves although 2 is fuller; the hand stands on 0 and clears
        // nothing.
        desk.run("w8 r21 r22 r40");
        assert_eq!(desk.gone(), [4, 5, 6, 0]);
        // The hand clears 2, 5 and 10: 5 has the most.
        desk.run("r41");
        assert_eq!(desk.gone(), [4, 5, 6, 0, 20, 21, 22]);
    }
}
