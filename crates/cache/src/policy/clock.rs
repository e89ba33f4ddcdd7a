//! CLOCK: blocks stand in a ring; the hand gives each a second chance if it was referenced.

use hashbrown::HashMap;

use super::{Policy, Verdict};

/// How many pinned blocks one search passes over before it gives up: a shard full of dirty blocks
/// must not turn every miss into a walk over all of them.
const MAX_PINNED: usize = 64;

/// The CLOCK policy. The reference bit itself lives in the block.
#[derive(Default)]
pub struct Clock {
    ring: Vec<u64>,
    place: HashMap<u64, usize>,
    hand: usize,
}

impl Clock {
    fn take_out(&mut self, at: usize) {
        let gone = self.ring.swap_remove(at);
        self.place.remove(&gone);
        if let Some(moved) = self.ring.get(at) {
            self.place.insert(*moved, at);
        }
    }
}

impl Policy for Clock {
    fn insert(&mut self, nr: u64) {
        if !self.place.contains_key(&nr) {
            self.place.insert(nr, self.ring.len());
            self.ring.push(nr);
        }
    }

    fn remove(&mut self, nr: u64) {
        if let Some(at) = self.place.get(&nr).copied() {
            self.take_out(at);
        }
    }

    fn evict(&mut self, try_evict: &mut dyn FnMut(u64) -> Verdict) -> bool {
        let mut pinned = 0;
        for _ in 0..2 * self.ring.len() {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let Some(nr) = self.ring.get(self.hand).copied() else {
                return false;
            };
            match try_evict(nr) {
                Verdict::Evicted => {
                    self.take_out(self.hand);
                    return true;
                }
                Verdict::Referenced => self.hand += 1,
                Verdict::Pinned => {
                    self.hand += 1;
                    pinned += 1;
                    if pinned >= MAX_PINNED {
                        return false;
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referenced_blocks_get_a_second_chance() {
        let mut clock = Clock::default();
        for nr in 0..4 {
            clock.insert(nr);
        }
        let mut referenced = [true, false, true, true];
        let mut gone = Vec::new();
        for _ in 0..4 {
            assert!(clock.evict(&mut |nr| {
                if std::mem::take(&mut referenced[nr as usize]) {
                    Verdict::Referenced
                } else {
                    gone.push(nr);
                    Verdict::Evicted
                }
            }));
        }
        assert_eq!(gone[0], 1, "the only unreferenced block goes first");
        gone.sort_unstable();
        assert_eq!(gone, [0, 1, 2, 3]);
        assert!(!clock.evict(&mut |_| Verdict::Evicted));
    }

    #[test]
    fn a_ring_of_pinned_blocks_is_given_up_soon() {
        let mut clock = Clock::default();
        for nr in 0..10_000 {
            clock.insert(nr);
        }
        let mut looks = 0;
        assert!(!clock.evict(&mut |_| {
            looks += 1;
            Verdict::Pinned
        }));
        assert!(looks <= MAX_PINNED);
    }
}
