//! CLOCK: the slots stand in a ring; the hand gives each block a second chance if it was referenced.

use super::{Policy, Verdict};

/// How many pinned blocks one search passes over before it gives up: a shard full of dirty blocks
/// must not turn every miss into a walk over all of them.
const MAX_PINNED: usize = 64;

/// The CLOCK policy. The reference bits are the shard's.
#[derive(Default)]
pub struct Clock {
    hand: usize,
}

impl Policy for Clock {
    fn choose(&mut self, slots: usize, offer: &mut dyn FnMut(usize) -> Verdict) -> Option<usize> {
        let mut pinned = 0;
        for _ in 0..2 * slots {
            let at = if self.hand < slots { self.hand } else { 0 };
            self.hand = at + 1;
            match offer(at) {
                Verdict::Victim => return Some(at),
                Verdict::Passed => {}
                Verdict::Pinned => {
                    pinned += 1;
                    if pinned >= MAX_PINNED {
                        return None;
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn referenced_blocks_get_a_second_chance() {
        let mut clock = Clock::default();
        let mut slots = [Some(true), Some(false), Some(true), Some(true)];
        let mut gone = Vec::new();
        for _ in 0..4 {
            let victim = clock.choose(4, &mut |at| match slots[at] {
                Some(false) => Verdict::Victim,
                Some(true) => {
                    slots[at] = Some(false);
                    Verdict::Passed
                }
                None => Verdict::Passed,
            });
            slots[victim.unwrap()] = None;
            gone.extend(victim);
        }
        assert_eq!(gone, [1, 0, 2, 3], "the only unreferenced block goes first");
        assert_eq!(clock.choose(4, &mut |_| Verdict::Passed), None);
        assert_eq!(clock.choose(0, &mut |_| Verdict::Victim), None);
    }

    #[test]
    fn a_ring_of_pinned_blocks_is_given_up_soon() {
        let mut clock = Clock::default();
        let mut looks = 0;
        let victim = clock.choose(10_000, &mut |_| {
            looks += 1;
            Verdict::Pinned
        });
        assert_eq!(victim, None);
        assert!(looks <= MAX_PINNED);
    }
}
