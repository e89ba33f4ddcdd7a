//! One shard of the cache: a map, and a policy that chooses victims.

use hashbrown::HashMap;
use std::sync::Arc;

use crate::block::Block;
use crate::policy::{Policy, PolicyKind, Verdict};

pub(crate) struct Shard<X> {
    map: HashMap<u64, Arc<Block<X>>>,
    policy: Box<dyn Policy>,
    capacity: usize,
}

impl<X: Default> Shard<X> {
    pub(crate) fn new(capacity: usize, policy: PolicyKind) -> Shard<X> {
        Shard {
            map: HashMap::new(),
            policy: policy.build(),
            capacity,
        }
    }

    pub(crate) fn get(&self, nr: u64) -> Option<&Arc<Block<X>>> {
        self.map.get(&nr)
    }

    /// The block, new and empty if it was not there. Also: how many blocks were evicted for it.
    pub(crate) fn get_or_insert(&mut self, nr: u64) -> (Arc<Block<X>>, bool, u64) {
        if let Some(block) = self.map.get(&nr) {
            return (block.clone(), false, 0);
        }
        let mut evicted = 0;
        // Shrinks by up to two for each block that comes, so an overfull shard (many dirty blocks a
        // moment ago) returns to its size.
        while self.map.len() >= self.capacity && evicted < 2 && self.evict_one() {
            evicted += 1;
        }
        let block = Arc::new(Block::new(nr));
        self.map.insert(nr, block.clone());
        self.policy.insert(nr);
        (block, true, evicted)
    }

    fn evict_one(&mut self) -> bool {
        let map = &mut self.map;
        self.policy.evict(&mut |nr| {
            let Some(block) = map.get(&nr) else {
                return Verdict::Evicted;
            };
            // C2: under the shard's lock nobody can take a new Arc from the map.
            if Arc::strong_count(block) > 1 {
                return Verdict::Pinned;
            }
            if block.take_referenced() {
                return Verdict::Referenced;
            }
            map.remove(&nr);
            Verdict::Evicted
        })
    }

    pub(crate) fn remove(&mut self, nr: u64) {
        if self.map.remove(&nr).is_some() {
            self.policy.remove(nr);
        }
    }

    /// Drops every block that nobody holds.
    pub(crate) fn drop_clean(&mut self) {
        let policy = &mut self.policy;
        self.map.retain(|nr, block| {
            let keep = Arc::strong_count(block) > 1;
            if !keep {
                policy.remove(*nr);
            }
            keep
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}
