//! GreedyDual by erase block: evicts the blocks that are cheapest to read again, or to write back,
//! for the time since their last use.
//!
//! GreedyDual (Young 1994, with frequencies: Cherkasova 1998) gives a block at each use the value
//! `L + f·cost`; the block with the least value leaves, and `L` rises to that value. Here a clean
//! block costs a read. The dirty blocks of one erase block are a group. Writing back a group costs
//! a write for each block, a visit to the erase block, divided among the blocks, and the move of
//! the rest of the erase block. The group's value is the mean of its blocks' values plus those
//! costs. When it is the least, the group is written back in order, except the blocks that are used
//! often and lately. The written blocks stay as clean blocks of their own age: no block is evicted
//! early because its erase block is full.
//!
//! A use that closely follows the previous one does not raise the frequency: a sequential writer
//! returns to the page in which its last call ended.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::blocks::{EraseBlocks, Sorted};
use super::lists::PerSlot;
use super::shape::{Costs, Shape};
use super::{Access, Attempts, Choice, Frame, LOOKS_PER_WRITE, Policy};

/// Values are in fractions of the cost of reading a page.
const UNIT: u64 = 1 << 10;

/// Maximum number of uses that count.
const MOST_USES: u8 = 3;

/// A group is written whole if it fills at least this many eighths of its erase block.
const FULL_EIGHTHS: u64 = 7;

#[derive(Clone, Copy, Default)]
struct State {
    nr: u64,
    /// The block's value; for a dirty block without the costs of its group.
    value: u64,
    /// When it was last used, in uses of the cache.
    last: u64,
    uses: u8,
    dirty: bool,
}

#[derive(Clone, Copy, Default)]
struct Group {
    blocks: u64,
    values: u128,
}

/// The GreedyDual policy.
pub(super) struct GdErase {
    erase: EraseBlocks,
    costs: Costs,
    /// Uses at most this far apart count as one.
    close: u64,
    state: PerSlot<State>,
    clean: BTreeSet<(u64, u32)>,
    dirty: Sorted,
    groups: HashMap<u64, Group>,
    order: BTreeSet<(u64, u64)>,
    /// The level `L`.
    level: u64,
    now: u64,
}

impl GdErase {
    pub(super) fn new(shape: Shape) -> GdErase {
        GdErase {
            erase: EraseBlocks {
                size: shape.erase_block.max(1),
            },
            costs: shape.costs,
            close: shape.capacity as u64 / 16,
            state: PerSlot::new(),
            clean: BTreeSet::new(),
            dirty: Sorted::default(),
            groups: HashMap::new(),
            order: BTreeSet::new(),
            level: 0,
            now: 0,
        }
    }

    /// The value of a group.
    fn value(&self, group: Group) -> u64 {
        let visit = u64::from(self.costs.visit) * UNIT / group.blocks;
        let others = self.erase.size.saturating_sub(group.blocks);
        let rest = u64::from(self.costs.rest) * UNIT * others / self.erase.size;
        (group.values / u128::from(group.blocks)) as u64 + visit + rest
    }

    /// Applies `change` to the group of a dirty block, and re-sorts the group by its value.
    fn regroup(&mut self, nr: u64, change: impl FnOnce(&mut Group)) {
        let block = self.erase.of(nr);
        let group = self.groups.entry(block).or_default();
        let before = *group;
        change(group);
        let after = *group;
        if before.blocks > 0 {
            self.order.remove(&(self.value(before), block));
        }
        if after.blocks > 0 {
            self.order.insert((self.value(after), block));
        } else {
            self.groups.remove(&block);
        }
    }

    /// Puts a block into the index of its state.
    fn enter(&mut self, slot: u32, state: State) {
        if state.dirty {
            self.dirty.insert(state.nr, slot);
            self.regroup(state.nr, |group| {
                group.blocks += 1;
                group.values += u128::from(state.value);
            });
        } else {
            self.clean.insert((state.value, slot));
        }
        *self.state.at(slot) = state;
    }

    fn leave(&mut self, slot: u32) -> State {
        let state = self.state.get(slot);
        if state.dirty {
            self.dirty.remove(state.nr);
            self.regroup(state.nr, |group| {
                group.blocks -= 1;
                group.values -= u128::from(state.value);
            });
        } else {
            self.clean.remove(&(state.value, slot));
        }
        state
    }

    /// The state after a use.
    fn after_use(&mut self, mut state: State, access: Access) -> State {
        self.now += 1;
        if state.uses == 0 || self.now - state.last > self.close {
            state.uses = (state.uses + 1).min(MOST_USES);
        }
        state.last = self.now;
        state.dirty |= access == Access::Write;
        let cost = if state.dirty {
            self.costs.write
        } else {
            self.costs.read
        };
        state.value = self.level + u64::from(state.uses) * u64::from(cost) * UNIT;
        state
    }

    /// The blocks of an erase block to write back: all if it is nearly full, else all except those
    /// that are used often and younger than the mean.
    fn due(&self, block: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let group = self.groups.get(&block).copied().unwrap_or_default();
        let mean = (group.values / u128::from(group.blocks.max(1))) as u64;
        let whole = group.blocks * 8 >= self.erase.size * FULL_EIGHTHS;
        let dirty = self.dirty.iter(self.erase.range(block));
        dirty.filter_map(move |(_, slot)| {
            let State { value, uses, .. } = self.state.get(slot);
            (whole || uses < 2 || value <= mean).then_some((value, slot))
        })
    }
}

impl Policy for GdErase {
    fn inserted(&mut self, frame: Frame, access: Access) {
        let state = State {
            nr: frame.nr,
            ..State::default()
        };
        let state = self.after_use(state, access);
        self.enter(frame.slot, state);
    }

    fn used(&mut self, frame: Frame, access: Access) {
        let before = self.state.get(frame.slot);
        if !before.dirty {
            let state = self.leave(frame.slot);
            let state = self.after_use(state, access);
            return self.enter(frame.slot, state);
        }
        // A dirty block stays where it is; only its value changes.
        let state = self.after_use(before, access);
        *self.state.at(frame.slot) = state;
        self.regroup(state.nr, |group| {
            group.values = group.values - u128::from(before.value) + u128::from(state.value);
        });
    }

    fn written(&mut self, frame: Frame) {
        let mut state = self.leave(frame.slot);
        if state.dirty {
            state.dirty = false;
            // It stays as a clean block of its own age.
            let more = u64::from(self.costs.write.saturating_sub(self.costs.read));
            state.value = state
                .value
                .saturating_sub(u64::from(state.uses) * more * UNIT);
        }
        self.enter(frame.slot, state);
    }

    fn removed(&mut self, frame: Frame) {
        self.leave(frame.slot);
    }

    fn choose(&mut self, may_go: &mut dyn FnMut(u32) -> bool, choice: &mut Choice) {
        let mut attempts = Attempts::new();
        let mut clean = self.clean.iter().copied().peekable();
        let mut groups = self.order.range(..).copied().peekable();
        loop {
            let take_clean = match (clean.peek(), groups.peek()) {
                (None, None) => return,
                (Some((clean, _)), Some((group, _))) => clean <= group,
                (clean, _) => clean.is_some(),
            };
            if take_clean {
                let Some((value, slot)) = clean.next() else {
                    return;
                };
                if may_go(slot) {
                    choice.evict.push(slot);
                    self.level = self.level.max(value);
                    return;
                }
                if !attempts.pinned() {
                    return;
                }
                continue;
            }
            let Some((value, block)) = groups.next() else {
                return;
            };
            let mut coldest: Option<(u64, u32)> = None;
            let mut held = Attempts::new();
            for (value, slot) in self.due(block) {
                choice.write.push(slot);
                if may_go(slot) {
                    coldest = Some(coldest.map_or((value, slot), |c| c.min((value, slot))));
                } else if !held.pinned() {
                    break;
                }
            }
            if let Some((_, slot)) = coldest {
                choice.evict.push(slot);
                self.level = self.level.max(value);
                return;
            }
            // The group is written first; until then clean blocks leave.
            groups = self.order.range(..(0, 0)).copied().peekable();
        }
    }

    fn to_write(&mut self, limit: usize, out: &mut Vec<u32>) {
        let groups = self
            .order
            .iter()
            .take(limit.saturating_mul(LOOKS_PER_WRITE));
        for (_, block) in groups {
            let room = limit - out.len().min(limit);
            if room == 0 {
                return;
            }
            out.extend(self.due(*block).map(|(_, slot)| slot).take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;

    fn desk(capacity: usize, visit: u32) -> Desk<GdErase> {
        let shape = Shape {
            capacity,
            erase_block: 4,
            costs: Costs {
                read: 1,
                write: 2,
                visit,
                rest: 0,
            },
        };
        Desk::new(GdErase::new(shape), capacity)
    }

    /// Worked by hand: without the cost of a visit a clean block leaves before dirty ones, until
    /// these are older by the cost of a write.
    #[test]
    fn clean_blocks_are_cheaper() {
        let mut desk = desk(3, 0);
        desk.run("w0 w8 r16 r20 r24");
        // The level rises by 1 with each clean block; the dirty ones have 2.
        assert_eq!(desk.gone(), [16, 20]);
        desk.run("r28 r32");
        assert_eq!(desk.gone(), [16, 20, 0, 8]);
        assert_eq!(desk.written(), [0, 8]);
    }

    /// Worked by hand: the fuller of two dirty erase blocks is written, all of it at once, and its
    /// blocks stay until they are the oldest.
    #[test]
    fn a_fuller_erase_block_is_cheaper() {
        let mut desk = desk(5, 12);
        desk.run("w0 w5 w6 w4 w9 r16");
        assert_eq!(
            desk.written(),
            [4, 5, 6],
            "12 / 3 a block, where 0 and 9 have 12"
        );
        assert_eq!(desk.gone(), [5], "the oldest of them leaves");
        desk.run("r20 r24");
        assert_eq!(desk.gone(), [5, 6, 4], "the others are clean and old");
        assert_eq!(desk.written(), [4, 5, 6]);
    }
}
