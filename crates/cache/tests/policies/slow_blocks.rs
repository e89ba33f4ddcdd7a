//! Slow versions of the policies that evict whole erase blocks.

use std::collections::{BTreeMap, BTreeSet};

use stetfs_cache::Frame;

use crate::Slow;

/// The cached block numbers of an erase block.
fn of(pages: &BTreeSet<u64>, size: u64, block: u64) -> Vec<u64> {
    let mine = pages.iter().filter(|nr| **nr / size == block);
    mine.copied().collect()
}

pub struct Fab {
    size: u64,
    pages: BTreeSet<u64>,
    used: BTreeMap<u64, u64>,
    now: u64,
}

impl Fab {
    pub fn new(size: u64) -> Fab {
        Fab {
            size,
            pages: BTreeSet::new(),
            used: BTreeMap::new(),
            now: 0,
        }
    }
}

impl Slow for Fab {
    fn insert(&mut self, frame: Frame, write: bool) {
        self.pages.insert(frame.nr);
        self.used(frame.nr, write);
    }
    fn used(&mut self, nr: u64, _: bool) {
        self.now += 1;
        self.used.insert(nr / self.size, self.now);
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        self.pages.remove(&nr);
    }
    fn choose(&mut self) -> Vec<u64> {
        let blocks: BTreeSet<u64> = self.pages.iter().map(|nr| nr / self.size).collect();
        let rank = |block: &&u64| {
            let count = of(&self.pages, self.size, **block).len();
            (count, std::cmp::Reverse(self.used[*block]))
        };
        let block = *blocks.iter().max_by_key(rank).unwrap();
        of(&self.pages, self.size, block)
    }
}

pub struct LbClock {
    size: u64,
    pages: BTreeSet<u64>,
    /// Erase blocks in the order in which they came, with their recency bits.
    ring: Vec<(u64, bool)>,
    hand: usize,
}

impl LbClock {
    pub fn new(size: u64) -> LbClock {
        LbClock {
            size,
            pages: BTreeSet::new(),
            ring: Vec::new(),
            hand: 0,
        }
    }
}

impl Slow for LbClock {
    fn insert(&mut self, frame: Frame, write: bool) {
        self.pages.insert(frame.nr);
        let block = frame.nr / self.size;
        if self.ring.iter().all(|(b, _)| *b != block) {
            self.ring.push((block, true));
        }
        self.used(frame.nr, write);
    }
    fn used(&mut self, nr: u64, _: bool) {
        let block = nr / self.size;
        self.ring.iter_mut().find(|(b, _)| *b == block).unwrap().1 = true;
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        self.pages.remove(&nr);
        let block = nr / self.size;
        if of(&self.pages, self.size, block).is_empty() {
            let at = self.ring.iter().position(|(b, _)| *b == block).unwrap();
            self.ring.remove(at);
            if at < self.hand {
                self.hand -= 1;
            }
        }
    }
    fn choose(&mut self) -> Vec<u64> {
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            if !self.ring[self.hand].1 {
                break;
            }
            self.ring[self.hand].1 = false;
            self.hand += 1;
        }
        let candidates = self
            .ring
            .iter()
            .enumerate()
            .filter(|(_, (_, recent))| !recent);
        let rank = |(at, (block, _)): &(usize, &(u64, bool))| {
            (
                of(&self.pages, self.size, *block).len(),
                std::cmp::Reverse(*at),
            )
        };
        let block = candidates.max_by_key(rank).unwrap().1.0;
        of(&self.pages, self.size, block)
    }
}
