//! A simulated page cache: it holds page numbers, no content.

use hashbrown::HashMap;
use serde::Serialize;
use stetfs_cache::{Access, Choice, Frame, Policy, PolicyKind, Shape};

use crate::trace::Op;

/// The storage below a page cache.
pub trait Storage {
    /// Reads a page that was not in the cache.
    fn read(&mut self, page: u64);
    /// Writes a dirty page.
    fn write(&mut self, page: u64);
}

/// Counts of a cache's work, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounters {
    /// Accesses to pages in the cache.
    pub hits: u64,
    /// Accesses to pages not in the cache.
    pub misses: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Pages read from the storage: misses of reads.
    pub reads: u64,
    /// Pages written to the storage.
    pub writes: u64,
    /// Pages among these written at the end of the trace, when all dirty pages are written in
    /// order.
    pub last_writes: u64,
}

impl CacheCounters {
    /// Hits as a part of all accesses, 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// A cache of `capacity` pages.
pub struct PageCache {
    policy: Box<dyn Policy>,
    slots: HashMap<u64, u32>,
    /// The page in each slot.
    pages: Vec<u64>,
    dirty: Vec<bool>,
    free: Vec<u32>,
    choice: Choice,
    counters: CacheCounters,
}

impl PageCache {
    /// An empty cache.
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

    /// Counts of its work.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Reads or writes a whole page.
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

    /// The dirty pages with their slots, by page number.
    pub fn dirty(&self) -> Vec<(u64, u32)> {
        let all = self.slots.iter().map(|(nr, slot)| (*nr, *slot));
        let mut dirty: Vec<_> = all.filter(|(_, slot)| self.dirty[*slot as usize]).collect();
        dirty.sort_unstable();
        dirty
    }

    /// Writes all dirty pages, by page number.
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

    /// Storage that checks each request against the trace.
    #[derive(Default)]
    struct Versions {
        /// The expected content of each page, and the content of the storage.
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

    /// With every policy the storage never returns an old version of a page, no clean page is
    /// written, and at the end everything is written.
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
