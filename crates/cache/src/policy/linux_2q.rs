//! Linux's two lists: blocks used once are inactive, blocks used again are active.
//!
//! It follows the kernel's treatment of file pages that are not mapped (`mark_page_accessed`,
//! `shrink_active_list`). A block comes to the front of the inactive list. Its second use makes it
//! active, and further ones change nothing. The end of the inactive list is evicted. While the
//! active list is longer than the inactive one, its end moves over, used or not.

use super::lists::{Lists, PerSlot};
use super::{Access, Choice, Frame, Policy, Queue, choose_from_back, dirty_of};

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

#[derive(Clone, Copy, Default)]
struct State {
    active: bool,
    dirty: bool,
}

/// The policy of Linux's page cache.
pub(super) struct Linux2q {
    /// The inactive and the active list; the most recent arrivals are in front.
    lists: Lists<2>,
    state: PerSlot<State>,
    len: [usize; 2],
}

impl Linux2q {
    pub(super) fn new() -> Linux2q {
        Linux2q {
            lists: Lists::new(),
            state: PerSlot::new(),
            len: [0; 2],
        }
    }

    fn take(&mut self, slot: u32) {
        self.lists.remove(slot);
        self.len[usize::from(self.state.get(slot).active)] -= 1;
    }

    fn put(&mut self, slot: u32, active: bool) {
        self.state.at(slot).active = active;
        self.lists.push_front(usize::from(active), slot);
        self.len[usize::from(active)] += 1;
    }
}

impl Queue for Linux2q {
    fn back(&self) -> Option<u32> {
        self.lists.back(INACTIVE)
    }

    fn is_dirty(&self, slot: u32) -> bool {
        self.state.get(slot).dirty
    }

    fn bring_forward(&mut self, slot: u32) {
        self.take(slot);
        self.put(slot, false);
    }
}

impl Policy for Linux2q {
    fn inserted(&mut self, frame: Frame, access: Access) {
        self.state.at(frame.slot).dirty = access == Access::Write;
        self.put(frame.slot, false);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.state.at(frame.slot).dirty |= access == Access::Write;
        // An active block stays where it is: the active list is in the order in which blocks became
        // active.
        if !self.state.get(frame.slot).active {
            self.take(frame.slot);
            self.put(frame.slot, true);
        }
    }

    fn written(&mut self, frame: Frame) {
        self.state.at(frame.slot).dirty = false;
    }

    fn removed(&mut self, frame: Frame) {
        self.take(frame.slot);
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        while self.len[ACTIVE] > self.len[INACTIVE] {
            let Some(slot) = self.lists.back(ACTIVE) else {
                break;
            };
            self.take(slot);
            self.put(slot, false);
        }
        choose_from_back(self, may_go, choice);
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let both = self.lists.backwards(INACTIVE);
        let both = both.chain(self.lists.backwards(ACTIVE));
        dirty_of(both, limit, |slot| self.state.get(slot).dirty, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// Worked by hand.
    #[test]
    fn what_is_used_twice_is_active() {
        let mut desk = Desk::new(Linux2q::new(), 4);
        // 1 and 2 become active; 3 and 4 stay inactive, and a stream replaces only them.
        desk.run("r1 r2 r3 r4 r2 r1 r5 r6 r7");
        assert_eq!(desk.gone(), [3, 4, 5]);
        // 6 makes three active ones: the oldest of them, 2, moves to the inactive list, in front of
        // 7.
        desk.run("r6 r8 r9");
        assert_eq!(desk.gone(), [3, 4, 5, 7, 2]);
    }
}
