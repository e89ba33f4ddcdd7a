//! LRU: evicts the block that was not used for the longest time.

use super::lists::{Lists, PerSlot};
use super::{Access, Choice, Frame, Policy, Queue, choose_from_back, dirty_of};

/// The LRU policy.
pub(super) struct Lru {
    /// One list, the most recently used block in front.
    order: Lists<1>,
    dirty: PerSlot<bool>,
}

impl Lru {
    pub(super) fn new() -> Lru {
        Lru {
            order: Lists::new(),
            dirty: PerSlot::new(),
        }
    }
}

impl Queue for Lru {
    fn back(&self) -> Option<u32> {
        self.order.back(0)
    }

    fn is_dirty(&self, slot: u32) -> bool {
        self.dirty.get(slot)
    }

    fn bring_forward(&mut self, slot: u32) {
        self.order.remove(slot);
        self.order.push_front(0, slot);
    }
}

impl Policy for Lru {
    fn inserted(&mut self, frame: Frame, access: Access) {
        self.order.push_front(0, frame.slot);
        *self.dirty.at(frame.slot) = access == Access::Write;
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.order.remove(frame.slot);
        self.order.push_front(0, frame.slot);
        *self.dirty.at(frame.slot) |= access == Access::Write;
    }

    fn written(&mut self, frame: Frame) {
        *self.dirty.at(frame.slot) = false;
    }

    fn removed(&mut self, frame: Frame) {
        self.order.remove(frame.slot);
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        choose_from_back(self, may_go, choice);
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        dirty_of(
            self.order.backwards(0),
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

    /// Worked by hand: five references to a cache of three.
    #[test]
    fn the_longest_unused_leaves() {
        let mut desk = Desk::new(Lru::new(), 3);
        desk.run("r1 w2 r3 r1 r4 r5 r1 r6");
        assert_eq!(desk.gone(), [2, 3, 4]);
        assert_eq!(
            desk.written(),
            [2],
            "what is dirty is written when it leaves"
        );
        assert_eq!(desk.suggested(9), []);
        desk.run("w5 w1");
        assert_eq!(desk.suggested(9), [5, 1], "the oldest first");
    }
}
