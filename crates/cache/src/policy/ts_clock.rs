//! TS-CLOCK: time and space (Kang, dissertation ch. 2, figure 2-2).
//!
//! All blocks stand in a ring in the order of time; the t-hand counts them down. A used clean block
//! has count 1, a dirty one 1 to 4 by the share of its erase block that is dirty and not yet at
//! count 0. A clean block with count 0 under the t-hand is evicted. When the block is dirty
//! the s-hand chooses: it goes over dirty blocks of one erase block by number, without counting
//! down, and takes the first with count 0. At the end of the erase block it continues in the erase
//! block of the block under the t-hand.
//!
//! Corrections to the printed pseudo-code: line 46 lowers the count of the erase block of the block
//! under the t-hand; only dirty blocks are counted there, up and down; a clean block that is
//! dirtied by a hit joins the sorted list. A search takes O(log n) for the s-hand, since dirty
//! blocks with count 0 have a sorted list of their own.

use hashbrown::HashMap;

use super::blocks::{EraseBlocks, Sorted};
use super::lists::{Lists, PerSlot};
use super::{Access, Attempts, Choice, Frame, LOOKS_PER_WRITE, Policy};

const RING: usize = 0;

#[derive(Clone, Copy, Default)]
struct State {
    nr: u64,
    count: u32,
    dirty: bool,
}

impl State {
    /// Whether the block counts in its erase block.
    fn hot(self) -> bool {
        self.dirty && self.count > 0
    }
}

/// The TS-CLOCK policy.
pub(super) struct TsClock {
    erase: EraseBlocks,
    ring: Lists<1>,
    state: PerSlot<State>,
    len: usize,
    /// All dirty blocks, and the dirty blocks with count 0.
    dirty: Sorted,
    cold: Sorted,
    /// The number of dirty blocks with a count above 0, by erase block; never 0.
    hot: HashMap<u64, u64>,
    /// The block that the t-hand looks at next; new blocks are put in front of it.
    t_hand: Option<u32>,
    /// The number of the dirty block under the s-hand.
    s_hand: Option<u64>,
}

impl TsClock {
    /// A policy for erase blocks of `size` blocks.
    pub(super) fn new(size: u64) -> TsClock {
        TsClock {
            erase: EraseBlocks { size },
            ring: Lists::new(),
            state: PerSlot::new(),
            len: 0,
            dirty: Sorted::default(),
            cold: Sorted::default(),
            hot: HashMap::new(),
            t_hand: None,
            s_hand: None,
        }
    }

    fn enter(&mut self, slot: u32, access: Access) {
        let mut state = self.state.get(slot);
        if access == Access::Write && !state.dirty {
            self.dirty.insert(state.nr, slot);
            if state.count == 0 {
                self.cold.insert(state.nr, slot);
            } else {
                self.heat(state.nr, true);
            }
            state.dirty = true;
        }
        if state.dirty {
            if state.count == 0 {
                self.cold.remove(state.nr);
                self.heat(state.nr, true);
            }
            let hot = self.hot.get(&self.erase.of(state.nr));
            let quarters = 4 * hot.copied().unwrap_or_default();
            state.count = quarters.div_ceil(self.erase.size) as u32;
        } else {
            state.count = 1;
        }
        *self.state.at(slot) = state;
    }

    /// Raises or lowers the erase block's number of dirty blocks with a count above 0.
    fn heat(&mut self, nr: u64, up: bool) {
        let block = self.erase.of(nr);
        let hot = self.hot.entry(block).or_default();
        if up {
            *hot += 1;
        } else {
            *hot -= 1;
            if *hot == 0 {
                self.hot.remove(&block);
            }
        }
    }

    fn count_down(&mut self, slot: u32) {
        let state = self.state.at(slot);
        state.count -= 1;
        let state = *state;
        if state.dirty && state.count == 0 {
            self.heat(state.nr, false);
            self.cold.insert(state.nr, slot);
        }
    }

    /// Removes a block from the lists of dirty blocks.
    fn clean(&mut self, slot: u32) {
        let state = self.state.get(slot);
        if !state.dirty {
            return;
        }
        self.dirty.remove(state.nr);
        if state.hot() {
            self.heat(state.nr, false);
        } else {
            self.cold.remove(state.nr);
        }
        if self.s_hand == Some(state.nr) {
            self.s_hand = self.dirty_after(state.nr);
        }
        let state = self.state.at(slot);
        state.dirty = false;
        state.count = state.count.min(1);
    }

    /// The next dirty block in the erase block of `nr`.
    fn dirty_after(&self, nr: u64) -> Option<u64> {
        let end = self.erase.range(self.erase.of(nr)).end;
        self.dirty.first(nr + 1..end).map(|(nr, _)| nr)
    }

    /// The victim that the s-hand chooses when the t-hand stands on a dirty block `t` with count 0.
    fn sweep(&mut self, t: u64) -> Option<u32> {
        let under_t = self.erase.range(self.erase.of(t));
        let here = self.s_hand.and_then(|s| {
            let end = self.erase.range(self.erase.of(s)).end;
            self.cold.first(s..end)
        });
        let (nr, slot) = here.or_else(|| self.cold.first(under_t.clone()))?;
        let next = self.dirty_after(nr);
        self.s_hand = next.or_else(|| self.dirty.first(under_t).map(|(nr, _)| nr));
        Some(slot)
    }
}

impl Policy for TsClock {
    fn inserted(&mut self, frame: Frame, access: Access) {
        *self.state.at(frame.slot) = State {
            nr: frame.nr,
            ..State::default()
        };
        self.ring.push_before(RING, frame.slot, self.t_hand);
        self.len += 1;
        self.enter(frame.slot, access);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        self.enter(frame.slot, access);
    }

    fn written(&mut self, frame: Frame) {
        self.clean(frame.slot);
    }

    fn removed(&mut self, frame: Frame) {
        self.clean(frame.slot);
        if self.t_hand == Some(frame.slot) {
            self.t_hand = self.ring.next(frame.slot);
        }
        self.ring.remove(frame.slot);
        self.len -= 1;
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let mut attempts = Attempts::new();
        // No count exceeds 4.
        for _ in 0..5 * self.len {
            let Some(slot) = self.t_hand.or_else(|| self.ring.front(RING)) else {
                return;
            };
            self.t_hand = self.ring.next(slot);
            let state = self.state.get(slot);
            if state.count > 0 {
                self.count_down(slot);
                continue;
            }
            let victim = if state.dirty {
                self.sweep(state.nr).unwrap_or(slot)
            } else {
                slot
            };
            if may_go(victim) {
                choice.evict.push(victim);
                return;
            }
            if state.dirty {
                choice.write.push(victim);
            }
            if !attempts.pinned() {
                return;
            }
        }
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let first = self.t_hand.or_else(|| self.ring.front(RING));
        let ring = std::iter::successors(first, |slot| self.ring.next_around(RING, *slot));
        let looks = self.len.min(limit.saturating_mul(LOOKS_PER_WRITE));
        let under_t = ring.take(looks).map(|slot| self.state.get(slot));
        let cold = under_t.filter(|s| s.dirty && s.count == 0).map(|s| s.nr);
        let mut seen = Vec::new();
        // Erase block by erase block, as the s-hand would go.
        for nr in self.s_hand.into_iter().chain(cold) {
            let block = self.erase.of(nr);
            if seen.contains(&block) {
                continue;
            }
            seen.push(block);
            let room = limit - out.len().min(limit);
            let block = self.cold.iter(self.erase.range(block));
            out.extend(block.map(|(_, slot)| slot).take(room));
            if out.len() >= limit {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    /// The ring from the t-hand on, as text: number, count, and `d` when dirty.
    fn ring(desk: &Desk<TsClock>) -> Vec<String> {
        let p = &desk.policy;
        let first = p.t_hand.or_else(|| p.ring.front(RING));
        let around = std::iter::successors(first, |slot| p.ring.next_around(RING, *slot));
        around
            .take(p.len)
            .map(|slot| {
                let s = p.state.get(slot);
                format!("{}{}{}", s.nr, if s.dirty { "d" } else { "c" }, s.count)
            })
            .collect()
    }

    /// Lowers a block's count to the figure's initial value.
    fn cool(desk: &mut Desk<TsClock>, nr: u64, to: u32) {
        let slot = desk.slot(nr);
        while desk.policy.state.get(slot).count > to {
            desk.policy.count_down(slot);
        }
    }

    /// Figure 2-3, erase blocks of four: E1 uses 16, E2 brings 53 (the text's "new page 31" is this
    /// one), E3 28, E4 29.
    #[test]
    fn figure_2_3() {
        let mut desk = Desk::new(TsClock::new(4), 9);
        desk.run("r31 w67 w65 w66 w16 w17 w14 r42 w13");
        for (nr, count) in [
            (31, 0),
            (67, 0),
            (66, 0),
            (65, 1),
            (16, 1),
            (17, 1),
            (14, 0),
        ] {
            cool(&mut desk, nr, count);
        }
        cool(&mut desk, 13, 1);
        let t0 = [
            "31c0", "67d0", "65d1", "66d0", "16d1", "17d1", "14d0", "42c1", "13d1",
        ];
        assert_eq!(ring(&desk), t0);
        assert_eq!(desk.policy.s_hand, None, "S0");

        desk.run("w16");
        let t1 = [
            "31c0", "67d0", "65d1", "66d0", "16d2", "17d1", "14d0", "42c1", "13d1",
        ];
        assert_eq!(ring(&desk), t1);

        // The clean block under the t-hand is replaced, and the t-hand moves on.
        desk.run("r53");
        assert_eq!(desk.gone(), [31]);
        let t2 = [
            "67d0", "65d1", "66d0", "16d2", "17d1", "14d0", "42c1", "13d1", "53c1",
        ];
        assert_eq!(ring(&desk), t2);
        assert_eq!(desk.policy.s_hand, None);

        // 67 is dirty: the s-hand begins at 65 (S1), passes it, takes 66 (S2); 28 stands behind the
        // t-hand.
        desk.run("r28");
        assert_eq!(desk.gone(), [31, 66]);
        let t3 = [
            "65d1", "16d2", "17d1", "14d0", "42c1", "13d1", "53c1", "67d0", "28c1",
        ];
        assert_eq!(ring(&desk), t3);
        assert_eq!(desk.policy.s_hand, Some(67), "S3");

        // The t-hand counts 65, 16 and 17 down and comes to 14 (T4); the s-hand is still in erase
        // block 16.
        desk.run("r29");
        assert_eq!(desk.gone(), [31, 66, 67], "S4");
        let t5 = [
            "42c1", "13d1", "53c1", "28c1", "65d0", "16d1", "17d0", "14d0", "29c1",
        ];
        assert_eq!(ring(&desk), t5);
        assert_eq!(
            desk.policy.s_hand,
            Some(13),
            "67 was the last: on with the first of 14's erase block"
        );
        assert_eq!(desk.written(), [66, 67]);
    }

    #[test]
    fn a_fuller_erase_block_counts_more() {
        let mut desk = Desk::new(TsClock::new(8), 9);
        desk.run("w0 w1 w2 w3 w4 w5 w6 w7 r9");
        let ends: Vec<_> = ring(&desk);
        assert_eq!(
            ends,
            [
                "0d1", "1d1", "2d2", "3d2", "4d3", "5d3", "6d4", "7d4", "9c1"
            ]
        );
        // Clean blocks are not counted in their erase block, and a clean one that is dirtied joins
        // it.
        desk.run("r10 w9");
        assert_eq!(desk.policy.hot.get(&1), Some(&1));
        assert!(desk.policy.dirty.first(9..10).is_some());
    }
}
