//! Slow versions of the policies with lists: vectors, the last used in front.

use stetfs_cache::Frame;

use crate::Slow;

#[derive(Default)]
pub struct Lru(Vec<u64>);

impl Slow for Lru {
    fn insert(&mut self, frame: Frame, _: bool) {
        self.0.insert(0, frame.nr);
    }
    fn used(&mut self, nr: u64, _: bool) {
        self.removed(nr);
        self.0.insert(0, nr);
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        self.0.retain(|n| *n != nr);
    }
    fn choose(&mut self) -> Vec<u64> {
        vec![*self.0.last().unwrap()]
    }
}

#[derive(Default)]
pub struct Linux2q {
    active: Vec<u64>,
    inactive: Vec<u64>,
}

impl Slow for Linux2q {
    fn insert(&mut self, frame: Frame, _: bool) {
        self.inactive.insert(0, frame.nr);
    }
    fn used(&mut self, nr: u64, _: bool) {
        if self.inactive.contains(&nr) {
            self.removed(nr);
            self.active.insert(0, nr);
        }
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        self.active.retain(|n| *n != nr);
        self.inactive.retain(|n| *n != nr);
    }
    fn choose(&mut self) -> Vec<u64> {
        while self.active.len() > self.inactive.len() {
            let last = self.active.pop().unwrap();
            self.inactive.insert(0, last);
        }
        let last = self.inactive.last().or(self.active.last());
        vec![*last.unwrap()]
    }
}

pub struct Cflru {
    order: Vec<(u64, bool)>,
    window: usize,
}

impl Cflru {
    pub fn new(capacity: usize) -> Cflru {
        Cflru {
            order: Vec::new(),
            window: (capacity / 4).max(1),
        }
    }
}

impl Slow for Cflru {
    fn insert(&mut self, frame: Frame, write: bool) {
        self.order.insert(0, (frame.nr, write));
    }
    fn used(&mut self, nr: u64, write: bool) {
        let was = self.order.iter().find(|(n, _)| *n == nr).unwrap().1;
        self.removed(nr);
        self.order.insert(0, (nr, was || write));
    }
    fn written(&mut self, nr: u64) {
        self.order.iter_mut().find(|(n, _)| *n == nr).unwrap().1 = false;
    }
    fn removed(&mut self, nr: u64) {
        self.order.retain(|(n, _)| *n != nr);
    }
    fn choose(&mut self) -> Vec<u64> {
        let mut window = self.order.iter().rev().take(self.window);
        let clean = window.find(|(_, dirty)| !dirty);
        vec![clean.or(self.order.last()).unwrap().0]
    }
}
