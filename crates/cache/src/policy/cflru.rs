//! CFLRU: LRU that evicts clean blocks first (Park, Jung, Kang, Kim and Lee, CASES 2006).
//!
//! The least recently used quarter is the clean-first region (the static window). The least
//! recently used clean block in it is evicted; without one, the least recently used block.

use std::collections::BTreeMap;

use super::lists::{Lists, PerSlot};
use super::{Access, Attempts, Choice, Frame, Policy, Queue, choose_from_back, dirty_of};

const LRU: usize = 0;

#[derive(Clone, Copy, Default)]
struct State {
    /// When it was last used, in uses of the cache.
    stamp: u64,
    dirty: bool,
    /// Whether it is in the clean-first region.
    window: bool,
}

/// The CFLRU policy with a static window.
pub(super) struct Cflru {
    /// One list, the most recently used block in front. The window is its end.
    order: Lists<1>,
    state: PerSlot<State>,
    /// The clean blocks of the window, the least recently used first.
    clean: BTreeMap<u64, u32>,
    /// The most recently used block of the window.
    edge: Option<u32>,
    /// Blocks in the window, and the number that it has in a full cache.
    inside: usize,
    window: usize,
    now: u64,
}

impl Cflru {
    /// A policy for `capacity` blocks: a quarter is the window.
    pub(super) fn new(capacity: usize) -> Cflru {
        Cflru {
            order: Lists::new(),
            state: PerSlot::new(),
            clean: BTreeMap::new(),
            edge: None,
            inside: 0,
            window: (capacity / 4).max(1),
            now: 0,
        }
    }

    /// Removes a block from the list and the window.
    fn take(&mut self, slot: u32) {
        let state = self.state.get(slot);
        if state.window {
            if self.edge == Some(slot) {
                self.edge = self.order.next(slot);
            }
            self.inside -= 1;
            self.clean.remove(&state.stamp);
            self.state.at(slot).window = false;
        }
        self.order.remove(slot);
    }

    /// Puts a block in front, and extends the window.
    fn put(&mut self, slot: u32) {
        self.now += 1;
        self.state.at(slot).stamp = self.now;
        self.order.push_front(LRU, slot);
    }

    /// Extends the window to its size.
    fn fill(&mut self) {
        while self.inside < self.window {
            let next = match self.edge {
                Some(edge) => self.order.prev(edge),
                None => self.order.back(LRU),
            };
            let Some(slot) = next else { return };
            self.edge = Some(slot);
            self.inside += 1;
            let state = self.state.at(slot);
            state.window = true;
            if !state.dirty {
                self.clean.insert(state.stamp, slot);
            }
        }
    }
}

impl Queue for Cflru {
    fn back(&self) -> Option<u32> {
        self.order.back(LRU)
    }

    fn is_dirty(&self, slot: u32) -> bool {
        self.state.get(slot).dirty
    }

    fn bring_forward(&mut self, slot: u32) {
        self.take(slot);
        self.put(slot);
    }
}

impl Policy for Cflru {
    fn inserted(&mut self, frame: Frame, access: Access) {
        *self.state.at(frame.slot) = State {
            dirty: access == Access::Write,
            ..State::default()
        };
        self.put(frame.slot);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.take(frame.slot);
        self.state.at(frame.slot).dirty |= access == Access::Write;
        self.put(frame.slot);
    }

    fn written(&mut self, frame: Frame) {
        let state = self.state.at(frame.slot);
        state.dirty = false;
        if state.window {
            self.clean.insert(state.stamp, frame.slot);
        }
    }

    fn removed(&mut self, frame: Frame) {
        self.take(frame.slot);
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        self.fill();
        let mut attempts = Attempts::new();
        for slot in self.clean.values().copied() {
            if may_go(slot) {
                choice.evict.push(slot);
                return;
            }
            if !attempts.pinned() {
                break;
            }
        }
        choose_from_back(self, may_go, choice);
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        dirty_of(
            self.order.backwards(LRU),
            limit,
            |slot| self.state.get(slot).dirty,
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// The paper's figure: P1…P4 in the working region, then P5 clean, P6 dirty, P7 clean, P8 dirty
    /// in the clean-first region, P8 the least recently used. LRU evicts P8 P7 P6 P5; CFLRU P7 P5
    /// P8 P6.
    #[test]
    fn the_papers_example() {
        let mut desk = Desk::new(
            Cflru {
                window: 4,
                ..Cflru::new(8)
            },
            8,
        );
        desk.run("w8 r7 w6 r5 r4 r3 r2 r1");
        let mut victims = Vec::new();
        // The window does not move in the figure: no new block comes.
        for _ in 0..4 {
            desk.policy.window = 4 - victims.len();
            victims.push(desk.evict());
        }
        assert_eq!(victims, [7, 5, 8, 6]);
    }

    /// Worked by hand: a window of one block is LRU.
    #[test]
    fn only_the_window_is_searched() {
        let mut desk = Desk::new(Cflru::new(4), 4);
        desk.run("w1 r2 w3 r4 r5");
        assert_eq!(desk.gone(), [1], "2 is clean, and outside of the window");
        desk.run("r6 r7");
        assert_eq!(desk.gone(), [1, 2, 3]);
    }
}
