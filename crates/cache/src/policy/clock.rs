//! CLOCK: the slots form a ring; the hand gives each block that was used again a second chance.
//!
//! A new block takes the slot of an evicted one, behind the hand, so it has one full turn. In the
//! cache of a mounted volume its first use gives no second chance: blocks that are used once do not
//! evict blocks that are used often. In the textbook variant the first use counts too.

use super::lists::PerSlot;
use super::{Access, Attempts, Choice, Frame, Policy, dirty_of};

const HERE: u8 = 1;
const REFERENCED: u8 = 2;
const DIRTY: u8 = 4;

/// The CLOCK policy.
pub(super) struct Clock {
    bits: PerSlot<u8>,
    /// Slots ever seen.
    slots: u32,
    hand: u32,
    /// The initial bits of a new block.
    first: u8,
}

impl Clock {
    /// The variant of mounted volumes: the first use of a block gives no second chance.
    pub(super) fn new() -> Clock {
        Clock {
            bits: PerSlot::new(),
            slots: 0,
            hand: 0,
            first: HERE,
        }
    }

    /// The textbook variant: the first use counts as any other.
    pub(super) fn textbook() -> Clock {
        Clock {
            first: HERE | REFERENCED,
            ..Clock::new()
        }
    }
}

fn dirt(access: Access) -> u8 {
    match access {
        Access::Read => 0,
        Access::Write => DIRTY,
    }
}

impl Policy for Clock {
    fn inserted(&mut self, frame: Frame, access: Access) {
        self.slots = self.slots.max(frame.slot + 1);
        *self.bits.at(frame.slot) = self.first | dirt(access);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        *self.bits.at(frame.slot) |= REFERENCED | dirt(access);
    }

    fn written(&mut self, frame: Frame) {
        *self.bits.at(frame.slot) &= !DIRTY;
    }

    fn removed(&mut self, frame: Frame) {
        *self.bits.at(frame.slot) = 0;
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let mut attempts = Attempts::new();
        for _ in 0..2 * u64::from(self.slots) {
            let at = if self.hand < self.slots { self.hand } else { 0 };
            self.hand = at + 1;
            let bits = self.bits.at(at);
            if *bits & REFERENCED != 0 {
                *bits &= !REFERENCED;
            } else if *bits & HERE != 0 {
                if may_go(at) {
                    choice.evict.push(at);
                    return;
                }
                if *bits & DIRTY != 0 {
                    choice.write.push(at);
                }
                if !attempts.pinned() {
                    return;
                }
            }
        }
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let ring = (self.hand..self.slots).chain(0..self.hand.min(self.slots));
        dirty_of(
            ring,
            limit,
            |slot| self.bits.get(slot) & (DIRTY | REFERENCED) == DIRTY,
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_PINNED;
    use super::super::desk::Desk;
    use super::*;

    #[test]
    fn referenced_blocks_get_a_second_chance() {
        let mut desk = Desk::new(Clock::new(), 4);
        desk.run("r0 r1 r2 r3 r0 r2 r3");
        let gone = [0; 4].map(|_| desk.evict());
        assert_eq!(gone, [1, 0, 2, 3], "the only unreferenced block goes first");
    }

    /// Worked by hand: all blocks come referenced, so the first search goes around and takes the
    /// oldest.
    #[test]
    fn in_the_textbooks_the_first_use_counts() {
        let mut desk = Desk::new(Clock::textbook(), 3);
        desk.run("r1 r2 r3 r4 r2 r5 r6");
        assert_eq!(desk.gone(), [1, 3, 2]);
    }

    #[test]
    fn a_ring_of_pinned_blocks_is_given_up_soon() {
        let mut clock = Clock::new();
        for slot in 0..10_000 {
            let frame = Frame { slot, nr: 7 };
            clock.inserted(frame, Access::Write);
        }
        let (mut looks, mut choice) = (0, Choice::default());
        clock.choose(
            &mut |_| {
                looks += 1;
                false
            },
            &mut choice,
        );
        assert!(choice.evict.is_empty());
        assert!(looks <= MAX_PINNED);
        assert_eq!(choice.write.len(), looks, "the flusher hears of them");
    }
}
