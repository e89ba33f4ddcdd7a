//! Sp.Clock: CLOCK whose ring is in the order of block numbers (Kim, Ryu and Ramachandran,
//! SIGMETRICS 2012).

use super::blocks::Sorted;
use super::lists::{Lists, PerSlot};
use super::{Access, Attempts, Choice, Frame, Policy, dirty_of};

const RING: usize = 0;

#[derive(Clone, Copy, Default)]
struct State {
    referenced: bool,
    dirty: bool,
}

/// The Sp.Clock policy.
pub(super) struct SpClock {
    /// Index that finds the place of a new block.
    sorted: Sorted,
    /// The ring, by number.
    ring: Lists<1>,
    state: PerSlot<State>,
    /// The block that the hand looks at next.
    hand: Option<u32>,
    len: usize,
}

impl SpClock {
    pub(super) fn new() -> SpClock {
        SpClock {
            sorted: Sorted::default(),
            ring: Lists::new(),
            state: PerSlot::new(),
            hand: None,
            len: 0,
        }
    }
}

impl Policy for SpClock {
    fn inserted(&mut self, frame: Frame, access: Access) {
        let before = self.sorted.before(frame.nr).map(|(_, slot)| slot);
        self.ring.push_after(RING, frame.slot, before);
        self.sorted.insert(frame.nr, frame.slot);
        // The first use counts: next to the hand the block would otherwise be evicted at once.
        *self.state.at(frame.slot) = State {
            referenced: true,
            dirty: access == Access::Write,
        };
        self.len += 1;
    }

    fn used(&mut self, frame: Frame, access: Access) {
        let state = self.state.at(frame.slot);
        state.referenced = true;
        state.dirty |= access == Access::Write;
    }

    fn written(&mut self, frame: Frame) {
        self.state.at(frame.slot).dirty = false;
    }

    fn removed(&mut self, frame: Frame) {
        if !self.sorted.remove(frame.nr) {
            return;
        }
        self.len -= 1;
        if self.hand == Some(frame.slot) {
            self.hand = self.ring.next(frame.slot);
        }
        self.ring.remove(frame.slot);
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let mut attempts = Attempts::new();
        for _ in 0..2 * self.len {
            let Some(slot) = self.hand.or_else(|| self.ring.front(RING)) else {
                return;
            };
            self.hand = self.ring.next(slot);
            let state = self.state.at(slot);
            if std::mem::take(&mut state.referenced) {
                continue;
            }
            if may_go(slot) {
                choice.evict.push(slot);
                return;
            }
            if state.dirty {
                choice.write.push(slot);
            }
            if !attempts.pinned() {
                return;
            }
        }
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let first = self.hand.or_else(|| self.ring.front(RING));
        let ring = std::iter::successors(first, |slot| self.ring.next_around(RING, *slot));
        let cold = |slot| {
            let state: State = self.state.get(slot);
            state.dirty && !state.referenced
        };
        dirty_of(ring.take(self.len), limit, cold, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// Worked by hand from the description.
    #[test]
    fn the_hand_goes_by_number() {
        let mut desk = Desk::new(SpClock::new(), 4);
        desk.run("w40 w10 w30 w20");
        // The hand clears 10, 20, 30, 40 and comes around to 10.
        desk.run("r25");
        assert_eq!(desk.gone(), [10]);
        // 20 is used, 25 is new: both pass; 30 goes. Then 40, for 5 is behind the hand.
        desk.run("w20 r5 w35");
        assert_eq!(desk.gone(), [10, 30, 40]);
        assert_eq!(desk.written(), [10, 30, 40]);
        // Around: 5, just new, passes; 20 was cleared and goes.
        desk.run("r99");
        assert_eq!(desk.gone(), [10, 30, 40, 20]);
    }
}
