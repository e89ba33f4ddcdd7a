//! A cache for tests of policies, driven by words: `r5` reads block 5, `w5` changes it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, Choice, Frame, Policy};

/// A cache of block numbers without content.
pub(super) struct Desk<P> {
    pub(super) policy: P,
    capacity: usize,
    slots: BTreeMap<u64, u32>,
    free: Vec<u32>,
    dirty: BTreeSet<u64>,
    gone: Vec<u64>,
    written: Vec<u64>,
}

impl<P: Policy> Desk<P> {
    pub(super) fn new(policy: P, capacity: usize) -> Desk<P> {
        Desk {
            policy,
            capacity,
            slots: BTreeMap::new(),
            free: (0..capacity as u32).rev().collect(),
            dirty: BTreeSet::new(),
            gone: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Runs the reads and writes in `words`.
    pub(super) fn run(&mut self, words: &str) {
        for word in words.split_whitespace() {
            let (kind, nr) = word.split_at(1);
            let access = match kind {
                "r" => Access::Read,
                "w" => Access::Write,
                other => panic!("{other}?"),
            };
            self.access(nr.parse().expect("a number"), access);
        }
    }

    fn access(&mut self, nr: u64, access: Access) {
        if access == Access::Write {
            self.dirty.insert(nr);
        }
        if let Some(slot) = self.slots.get(&nr).copied() {
            self.policy.used(Frame { slot, nr }, access);
            return;
        }
        if self.slots.len() == self.capacity {
            self.evict();
        }
        let slot = self.free.pop().expect("a free slot");
        self.slots.insert(nr, slot);
        self.policy.inserted(Frame { slot, nr }, access);
    }

    /// Makes room; returns the last evicted block.
    pub(super) fn evict(&mut self) -> u64 {
        let mut choice = Choice::default();
        self.policy.choose(&mut |_| true, &mut choice);
        for slot in choice.write {
            let nr = self.nr(slot);
            if self.dirty.remove(&nr) {
                self.written.push(nr);
                self.policy.written(Frame { slot, nr });
            }
        }
        for slot in choice.evict {
            let nr = self.nr(slot);
            self.policy.removed(Frame { slot, nr });
            self.slots.remove(&nr);
            self.free.push(slot);
            if self.dirty.remove(&nr) {
                self.written.push(nr);
            }
            self.gone.push(nr);
        }
        *self.gone.last().expect("somebody leaves")
    }

    fn nr(&self, slot: u32) -> u64 {
        let found = self.slots.iter().find(|(_, s)| **s == slot);
        *found.expect("a slot in use").0
    }

    pub(super) fn slot(&self, nr: u64) -> u32 {
        self.slots[&nr]
    }

    /// The evicted blocks, in order.
    pub(super) fn gone(&self) -> &[u64] {
        &self.gone
    }

    /// The evicted blocks that were dirty, in order.
    pub(super) fn written(&self) -> &[u64] {
        &self.written
    }

    /// The blocks that the policy suggests to write back.
    pub(super) fn suggested(&mut self, limit: usize) -> Vec<u64> {
        let mut out = Vec::new();
        self.policy.to_write(limit, &mut out);
        out.into_iter().map(|slot| self.nr(slot)).collect()
    }
}
