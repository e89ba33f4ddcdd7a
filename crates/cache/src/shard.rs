//! One shard of the cache: blocks in numbered slots, a map to find them, and a policy that chooses victims.

use hashbrown::HashMap;
use std::sync::Arc;

use crate::block::Block;
use crate::policy::{Policy, PolicyKind, Verdict};

pub(crate) struct Shard<X> {
    /// The slot of each block.
    map: HashMap<u64, usize>,
    slots: Vec<Option<Slot<X>>>,
    /// Empty slots.
    free: Vec<usize>,
    policy: Box<dyn Policy>,
    capacity: usize,
}

struct Slot<X> {
    block: Arc<Block<X>>,
    /// It was used again after it came, or since the policy last offered it.
    referenced: bool,
}

impl<X: Default> Shard<X> {
    pub(crate) fn new(capacity: usize, policy: PolicyKind) -> Shard<X> {
        Shard {
            map: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            policy: policy.build(),
            capacity,
        }
    }

    fn slot(&mut self, nr: u64) -> Option<&mut Slot<X>> {
        let at = *self.map.get(&nr)?;
        self.slots.get_mut(at)?.as_mut()
    }

    /// The block if it is here. Not a use of it.
    pub(crate) fn find(&mut self, nr: u64) -> Option<&Arc<Block<X>>> {
        self.slot(nr).map(|slot| &slot.block)
    }

    /// The block if it is here, for use.
    pub(crate) fn get(&mut self, nr: u64) -> Option<&Arc<Block<X>>> {
        self.slot(nr).map(|slot| {
            slot.referenced = true;
            &slot.block
        })
    }

    /// The block for use, new and empty if it was not there. Also: how many blocks were evicted for it.
    pub(crate) fn get_or_insert(&mut self, nr: u64) -> (Arc<Block<X>>, u64) {
        if let Some(block) = self.get(nr) {
            return (block.clone(), 0);
        }
        let mut evicted = 0;
        // Shrinks by up to two for each block that comes, so an overfull shard (many dirty blocks a
        // moment ago) returns to its size.
        while self.map.len() >= self.capacity && evicted < 2 && self.evict_one() {
            evicted += 1;
        }
        let block = Arc::new(Block::new(nr));
        // What is used only once has no second chance: a stream does not drive out what is used often.
        let slot = Some(Slot {
            block: block.clone(),
            referenced: false,
        });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.map.insert(nr, at);
        (block, evicted)
    }

    fn evict_one(&mut self) -> bool {
        let slots = &mut self.slots;
        let victim = self.policy.choose(slots.len(), &mut |at| {
            let Some(Some(slot)) = slots.get_mut(at) else {
                return Verdict::Passed;
            };
            if std::mem::take(&mut slot.referenced) {
                return Verdict::Passed;
            }
            // C2: under the shard's lock nobody can take a new Arc from the map.
            match Arc::strong_count(&slot.block) {
                1 => Verdict::Victim,
                _ => Verdict::Pinned,
            }
        });
        victim.is_some_and(|at| self.vacate(at))
    }

    /// Empties a slot; says whether it held a block.
    fn vacate(&mut self, at: usize) -> bool {
        let Some(slot) = self.slots.get_mut(at).and_then(Option::take) else {
            return false;
        };
        self.map.remove(&slot.block.nr());
        self.free.push(at);
        true
    }

    pub(crate) fn remove(&mut self, nr: u64) {
        if let Some(at) = self.map.get(&nr).copied() {
            self.vacate(at);
        }
    }

    /// Drops every block that nobody holds.
    pub(crate) fn drop_clean(&mut self) {
        for at in 0..self.slots.len() {
            let unheld = |slot: &Slot<X>| Arc::strong_count(&slot.block) == 1;
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

    fn shard(capacity: usize) -> Shard<()> {
        Shard::new(capacity, PolicyKind::Clock)
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
        // The first search goes over the marks of all.
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
}
