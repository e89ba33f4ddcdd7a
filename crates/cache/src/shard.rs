//! One shard of the cache: blocks in numbered slots, a map to find them, and a policy that chooses
//! victims. Shards exist so that threads seldom wait for one lock.

use hashbrown::HashMap;
use std::sync::Arc;

use crate::block::Block;
use crate::policy::{Access, Choice, Frame, Policy, PolicyKind, Shape};

pub(crate) struct Shard<X> {
    /// The slot of each block.
    map: HashMap<u64, usize>,
    slots: Vec<Option<Arc<Block<X>>>>,
    /// Empty slots.
    free: Vec<usize>,
    policy: Box<dyn Policy>,
    /// The policy's last answer; its allocations are reused.
    choice: Choice,
    capacity: usize,
}

fn frame(slot: usize, nr: u64) -> Frame {
    Frame {
        slot: slot as u32,
        nr,
    }
}

impl<X: Default> Shard<X> {
    pub(crate) fn new(policy: PolicyKind, shape: Shape) -> Shard<X> {
        Shard {
            map: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            policy: policy.build(shape),
            choice: Choice::default(),
            capacity: shape.capacity,
        }
    }

    /// The block if it is cached. Does not count as a use.
    pub(crate) fn find(&mut self, nr: u64) -> Option<&Arc<Block<X>>> {
        let at = *self.map.get(&nr)?;
        self.slots.get(at)?.as_ref()
    }

    /// The block if it is cached. Counts as a use.
    pub(crate) fn get(&mut self, nr: u64) -> Option<&Arc<Block<X>>> {
        let at = *self.map.get(&nr)?;
        self.policy.used(frame(at, nr), Access::Read);
        self.slots.get(at)?.as_ref()
    }

    /// The block, new and empty if it was not cached, and the number of blocks evicted for it.
    /// Counts as a use.
    pub(crate) fn get_or_insert(&mut self, nr: u64) -> (Arc<Block<X>>, u64) {
        if let Some(block) = self.get(nr) {
            return (block.clone(), 0);
        }
        let mut evicted = 0;
        // Evicts up to two blocks for each new one, so an overfull shard (many dirty blocks a
        // moment ago) returns to its size.
        while self.map.len() >= self.capacity && evicted < 2 {
            match self.evict() {
                0 => break,
                n => evicted += n,
            }
        }
        let block = Arc::new(Block::new(nr));
        let slot = Some(block.clone());
        let at = match self.free.pop() {
            Some(at) => {
                let before = std::mem::replace(&mut self.slots[at], slot);
                debug_assert!(before.is_none(), "policy.P1: a slot is given out twice");
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.map.insert(nr, at);
        self.policy.inserted(frame(at, nr), Access::Read);
        (block, evicted)
    }

    /// Sets the capacity in blocks. Surplus blocks leave as others come, or by
    /// [`shrink`](Self::shrink).
    pub(crate) fn set_capacity(&mut self, blocks: usize) {
        self.capacity = blocks;
    }

    /// Evicts up to `most` blocks above the capacity. Returns how many left: none when the shard is
    /// within its capacity, or when the surplus blocks are held.
    pub(crate) fn shrink(&mut self, most: u64) -> u64 {
        let mut gone = 0;
        while self.map.len() > self.capacity && gone < most {
            match self.evict() {
                0 => break,
                n => gone += n,
            }
        }
        gone
    }

    /// The block is dirty: its data is written back later.
    pub(crate) fn dirtied(&mut self, nr: u64) {
        if let Some(at) = self.map.get(&nr) {
            self.policy.used(frame(*at, nr), Access::Write);
        }
    }

    /// The block's data has been written back.
    pub(crate) fn written(&mut self, nr: u64) {
        if let Some(at) = self.map.get(&nr) {
            self.policy.written(frame(*at, nr));
        }
    }

    /// Evicts the blocks that the policy chooses; returns how many.
    fn evict(&mut self) -> u64 {
        let slots = &self.slots;
        let mut choice = std::mem::take(&mut self.choice);
        choice.clear();
        // cache.C2: under the shard's lock no thread can take a new Arc from the map.
        let unheld = |slot: u32| {
            let block = slots.get(slot as usize).and_then(Option::as_ref);
            block.is_some_and(|block| Arc::strong_count(block) == 1)
        };
        self.policy.choose(&mut { unheld }, &mut choice);
        let mut gone = 0;
        for slot in &choice.evict {
            let left = self.vacate(*slot as usize);
            debug_assert!(left, "policy.P3: what was chosen is not there");
            gone += u64::from(left);
        }
        self.choice = choice;
        gone
    }

    /// Empties a slot; returns whether it held a block.
    fn vacate(&mut self, at: usize) -> bool {
        let Some(block) = self.slots.get_mut(at).and_then(Option::take) else {
            return false;
        };
        self.map.remove(&block.nr());
        self.policy.removed(frame(at, block.nr()));
        self.free.push(at);
        true
    }

    pub(crate) fn remove(&mut self, nr: u64) {
        if let Some(at) = self.map.get(&nr).copied() {
            self.vacate(at);
        }
    }

    /// Drops every block that only the cache holds.
    pub(crate) fn drop_clean(&mut self) {
        for at in 0..self.slots.len() {
            let unheld = |block: &Arc<Block<X>>| Arc::strong_count(block) == 1;
            if self.slots[at].as_ref().is_some_and(unheld) {
                self.vacate(at);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Costs;

    fn shard(capacity: usize) -> Shard<()> {
        let shape = Shape {
            capacity,
            erase_block: 1,
            costs: Costs::default(),
        };
        Shard::new(PolicyKind::Clock, shape)
    }

    #[test]
    fn a_stream_does_not_drive_out_what_is_used_again() {
        let mut shard = shard(8);
        for nr in 0..4 {
            shard.get_or_insert(nr);
            shard.get(nr);
        }
        for nr in 100..104 {
            shard.get_or_insert(nr);
        }
        // The first search passes over the marks of all blocks.
        for nr in 104..107 {
            shard.get_or_insert(nr);
            (0..4).for_each(|nr| assert!(shard.get(nr).is_some()));
        }
        for nr in 107..1000 {
            shard.get_or_insert(nr);
            (0..4).for_each(|nr| assert!(shard.get(nr).is_some(), "{nr}"));
            assert_eq!(shard.len(), 8);
        }
        assert!(shard.find(100).is_none());
        assert_eq!(shard.slots.len(), 8, "slots are used again");
    }

    /// cache.C2.
    #[test]
    fn what_is_held_stays_and_room_is_given_back_later() {
        let mut shard = shard(4);
        let held: Vec<_> = (0..20).map(|nr| shard.get_or_insert(nr).0).collect();
        assert_eq!(shard.len(), 20);
        drop(held);
        for nr in 100..140 {
            shard.get_or_insert(nr);
        }
        assert_eq!(shard.len(), 4);
        shard.remove(139);
        assert!(shard.find(139).is_none());
        shard.drop_clean();
        assert_eq!(shard.len(), 0);
        assert_eq!(shard.free.len(), shard.slots.len());
    }

    #[test]
    fn it_shrinks_in_steps_to_another_room_and_grows_again() {
        let mut shard = shard(100);
        let held: Vec<_> = (0..10).map(|nr| shard.get_or_insert(nr).0).collect();
        for nr in 10..100 {
            shard.get_or_insert(nr);
        }
        shard.set_capacity(20);
        assert!((32..64).contains(&shard.shrink(32)));
        while shard.shrink(32) > 0 {}
        assert_eq!(shard.len(), 20);
        assert!((0..10).all(|nr| shard.find(nr).is_some()));
        // Held blocks may exceed the capacity.
        shard.set_capacity(4);
        while shard.shrink(32) > 0 {}
        assert_eq!(shard.len(), 10);
        drop(held);
        while shard.shrink(32) > 0 {}
        assert_eq!(shard.len(), 4);
        shard.set_capacity(50);
        for nr in 200..300 {
            shard.get_or_insert(nr);
        }
        assert_eq!(shard.len(), 50);
    }
}
