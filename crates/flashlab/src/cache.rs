//! A page cache in simulation: only numbers.

use hashbrown::HashMap;
use serde::Serialize;
use stetfs_cache::{Access, Choice, Frame, Policy, PolicyKind, Shape};

use crate::trace::Op;

/// What a page cache reads from and writes to.
pub trait Storage {
    /// A page that was not in the cache is read.
    fn read(&mut self, page: u64);
    /// A dirty page is written.
    fn write(&mut self, page: u64);
}

/// What a cache did, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounters {
    /// Pages that were asked for and there.
    pub hits: u64,
    /// And not there.
    pub misses: u64,
    /// Pages that made room.
    pub evictions: u64,
    /// Pages read: misses that were reads.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Of these: at the end of the trace, when all that is dirty is written in order.
    pub last_writes: u64,
}

impl CacheCounters {
    /// Hits as a part of what was asked for, 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// A cache of `capacity` pages.
pub struct PageCache {
    policy: Box<dyn Policy>,
    slots: HashMap<u64, u32>,
    /// By slot: the page.
    pages: Vec<u64>,
    dirty: Vec<bool>,
    free: Vec<u32>,
    choice: Choice,
    counters: CacheCounters,
}

impl PageCache {
    /// An empty one.
    pub fn new(policy: PolicyKind, shape: Shape) -> PageCache {
        let capacity = shape.capacity.max(1);
        PageCache {
            policy: policy.build(Shape { capacity, ..shape }),
            slots: HashMap::with_capacity(capacity),
            pages: vec![0; capacity],
            dirty: vec![false; capacity],
            free: (0..capacity as u32).rev().collect(),
            choice: Choice::default(),
            counters: CacheCounters::default(),
        }
    }

    /// What it did.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// A page is read or written as a whole.
    pub fn access(&mut self, page: u64, op: Op, storage: &mut impl Storage) {
        let access = match op {
            Op::Read => Access::Read,
            Op::Write => Access::Write,
        };
        if let Some(slot) = self.slots.get(&page).copied() {
            self.counters.hits += 1;
            self.dirty[slot as usize] |= op == Op::Write;
            self.policy.used(Frame { slot, nr: page }, access);
            return;
        }
        self.counters.misses += 1;
        let slot = loop {
            match self.free.pop() {
                Some(slot) => break slot,
                None => self.make_room(storage),
            }
        };
        if op == Op::Read {
            self.counters.reads += 1;
            storage.read(page);
        }
        self.pages[slot as usize] = page;
        self.dirty[slot as usize] = op == Op::Write;
        self.slots.insert(page, slot);
        self.policy.inserted(Frame { slot, nr: page }, access);
    }

    fn make_room(&mut self, storage: &mut impl Storage) {
        let mut choice = std::mem::take(&mut self.choice);
        choice.clear();
        self.policy.choose(&mut |_| true, &mut choice);
        for slot in choice.write.iter().copied() {
            if self.write(slot, storage) {
                self.policy.written(self.frame(slot));
            }
        }
        for slot in choice.evict.iter().copied() {
            self.write(slot, storage);
            let frame = self.frame(slot);
            self.slots.remove(&frame.nr);
            self.policy.removed(frame);
            self.free.push(slot);
            self.counters.evictions += 1;
        }
        assert!(!choice.evict.is_empty(), "every page may go, so one goes");
        self.choice = choice;
    }

    fn frame(&self, slot: u32) -> Frame {
        Frame {
            slot,
            nr: self.pages[slot as usize],
        }
    }

    /// Writes a slot's page if it is dirty.
    fn write(&mut self, slot: u32, storage: &mut impl Storage) -> bool {
        let dirty = std::mem::take(&mut self.dirty[slot as usize]);
        if dirty {
            self.counters.writes += 1;
            storage.write(self.pages[slot as usize]);
        }
        dirty
    }

    /// Pages that are dirty, with their slots, by number.
    pub fn dirty(&self) -> Vec<(u64, u32)> {
        let all = self.slots.iter().map(|(nr, slot)| (*nr, *slot));
        let mut dirty: Vec<_> = all.filter(|(_, slot)| self.dirty[*slot as usize]).collect();
        dirty.sort_unstable();
        dirty
    }

    /// Writes all that is dirty, by number.
    pub fn flush(&mut self, storage: &mut impl Storage) {
        for (_, slot) in self.dirty() {
            self.write(slot, storage);
            self.counters.last_writes += 1;
            self.policy.written(self.frame(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Storage that checks itself against what the trace wrote.
    #[derive(Default)]
    struct Versions {
        /// What each page should read as, and what the storage has.
        now: HashMap<u64, u64>,
        stored: HashMap<u64, u64>,
        reads: u64,
        writes: u64,
    }

    impl Storage for Versions {
        fn read(&mut self, page: u64) {
            self.reads += 1;
            assert_eq!(
                self.stored.get(&page),
                self.now.get(&page),
                "{page} was lost"
            );
        }
        fn write(&mut self, page: u64) {
            self.writes += 1;
            let version = self.now[&page];
            assert_ne!(
                self.stored.insert(page, version),
                Some(version),
                "{page} was clean"
            );
        }
    }

    /// Whatever the policy, a page that was dirty is never read back old, none is written that was
    /// clean, and in the end all is written.
    #[test]
    fn no_policy_loses_a_write() {
        for policy in PolicyKind::ALL {
            for seed in 0..20 {
                let mut random = fastrand::Rng::with_seed(seed);
                let shape = Shape {
                    capacity: random.usize(1..60),
                    erase_block: random.u64(1..20),
                    costs: stetfs_cache::Costs::default(),
                };
                let mut cache = PageCache::new(policy, shape);
                let mut storage = Versions::default();
                let range = random.u64(1..200);
                for version in 0..5000 {
                    let page = random.u64(..range).min(random.u64(..range));
                    if random.bool() {
                        storage.now.insert(page, version);
                        cache.access(page, Op::Write, &mut storage);
                    } else {
                        cache.access(page, Op::Read, &mut storage);
                    }
                }
                cache.flush(&mut storage);
                assert_eq!(storage.now, storage.stored, "{policy}");
                let counters = cache.counters();
                assert_eq!(counters.hits + counters.misses, 5000);
                assert_eq!(
                    (counters.reads, counters.writes),
                    (storage.reads, storage.writes)
                );
            }
        }
    }
}
