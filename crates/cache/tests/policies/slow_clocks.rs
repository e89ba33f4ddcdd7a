//! Slow versions of the clocks: vectors with a position.

use stetfs_cache::Frame;

use crate::Slow;

/// The ring: slots with number and reference bit.
#[derive(Default)]
pub struct Clock {
    slots: Vec<Option<(u64, bool)>>,
    hand: usize,
    first: bool,
}

impl Clock {
    pub fn textbook() -> Clock {
        Clock {
            first: true,
            ..Clock::default()
        }
    }
}

impl Slow for Clock {
    fn insert(&mut self, frame: Frame, _: bool) {
        let slot = frame.slot as usize;
        self.slots.resize(self.slots.len().max(slot + 1), None);
        self.slots[slot] = Some((frame.nr, self.first));
    }
    fn used(&mut self, nr: u64, _: bool) {
        let mut here = self.slots.iter_mut().flatten();
        here.find(|(n, _)| *n == nr).unwrap().1 = true;
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        let here = |slot: &&mut Option<(u64, bool)>| slot.is_some_and(|(n, _)| n == nr);
        *self.slots.iter_mut().find(here).unwrap() = None;
    }
    fn choose(&mut self) -> Vec<u64> {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            self.hand += 1;
            match &mut self.slots[self.hand - 1] {
                Some((_, bit @ true)) => *bit = false,
                Some((nr, false)) => return vec![*nr],
                None => {}
            }
        }
    }
}

/// The ring: sorted numbers with reference bits.
#[derive(Default)]
pub struct SpClock {
    pages: Vec<(u64, bool)>,
    /// The number that the hand looks at next; `None` is the first.
    hand: Option<u64>,
}

impl SpClock {
    fn after(&self, nr: u64) -> Option<u64> {
        self.pages.iter().map(|p| p.0).find(|n| *n > nr)
    }
}

impl Slow for SpClock {
    fn insert(&mut self, frame: Frame, _: bool) {
        self.pages.push((frame.nr, true));
        self.pages.sort_unstable();
    }
    fn used(&mut self, nr: u64, _: bool) {
        self.pages.iter_mut().find(|(n, _)| *n == nr).unwrap().1 = true;
    }
    fn written(&mut self, _: u64) {}
    fn removed(&mut self, nr: u64) {
        if self.hand == Some(nr) {
            self.hand = self.after(nr);
        }
        self.pages.retain(|(n, _)| *n != nr);
    }
    fn choose(&mut self) -> Vec<u64> {
        loop {
            let nr = self.hand.unwrap_or(self.pages[0].0);
            self.hand = self.after(nr);
            let page = self.pages.iter_mut().find(|(n, _)| *n == nr).unwrap();
            if !std::mem::take(&mut page.1) {
                return vec![nr];
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Page {
    nr: u64,
    count: u64,
    dirty: bool,
}

/// Figure 2-2 line by line, with its three errors corrected.
pub struct TsClock {
    size: u64,
    ring: Vec<Page>,
    /// The position of the t-hand.
    t: usize,
    s: Option<u64>,
}

impl TsClock {
    pub fn new(size: u64) -> TsClock {
        TsClock {
            size,
            ring: Vec::new(),
            t: 0,
            s: None,
        }
    }

    fn page(&mut self, nr: u64) -> &mut Page {
        self.ring.iter_mut().find(|p| p.nr == nr).unwrap()
    }

    /// The sorted list of an erase block.
    fn sorted(&self, block: u64) -> Vec<Page> {
        let mine = |p: &&Page| p.dirty && p.nr / self.size == block;
        let mut pages: Vec<Page> = self.ring.iter().filter(mine).copied().collect();
        pages.sort_by_key(|p| p.nr);
        pages
    }

    fn after(&self, nr: u64) -> Option<u64> {
        let pages = self.sorted(nr / self.size);
        pages.iter().map(|p| p.nr).find(|n| *n > nr)
    }

    fn set(&mut self, nr: u64, write: bool) {
        let page = self.page(nr);
        page.dirty |= write;
        page.count = page.count.max(1);
        if !page.dirty {
            page.count = 1;
            return;
        }
        let pages = self.sorted(nr / self.size);
        let non_zero = pages.iter().filter(|p| p.count > 0).count() as u64;
        self.page(nr).count = (4 * non_zero).div_ceil(self.size);
    }

    fn no_longer_sorted(&mut self, nr: u64) {
        if self.s == Some(nr) {
            self.s = self.after(nr);
        }
    }
}

impl Slow for TsClock {
    fn insert(&mut self, frame: Frame, write: bool) {
        let page = Page {
            nr: frame.nr,
            count: 0,
            dirty: false,
        };
        self.ring.insert(self.t, page);
        // The new block is behind the hand.
        self.t = (self.t + 1) % self.ring.len();
        self.set(frame.nr, write);
    }
    fn used(&mut self, nr: u64, write: bool) {
        self.set(nr, write);
    }
    fn written(&mut self, nr: u64) {
        self.no_longer_sorted(nr);
        let page = self.page(nr);
        page.dirty = false;
        page.count = page.count.min(1);
    }
    fn removed(&mut self, nr: u64) {
        self.no_longer_sorted(nr);
        let at = self.ring.iter().position(|p| p.nr == nr).unwrap();
        self.ring.remove(at);
        if at < self.t {
            self.t -= 1;
        }
        self.t = if self.ring.is_empty() {
            0
        } else {
            self.t % self.ring.len()
        };
    }
    fn choose(&mut self) -> Vec<u64> {
        loop {
            let under = self.ring[self.t];
            let t = self.t;
            self.t = (self.t + 1) % self.ring.len();
            if under.count > 0 {
                self.ring[t].count -= 1;
                continue;
            }
            if !under.dirty {
                return vec![under.nr];
            }
            let first = |ts: &TsClock| ts.sorted(under.nr / ts.size)[0].nr;
            let mut hand = self.s.unwrap_or_else(|| first(self));
            loop {
                let s = *self.page(hand);
                hand = self.after(hand).unwrap_or_else(|| first(self));
                if s.count == 0 {
                    self.s = Some(hand);
                    return vec![s.nr];
                }
            }
        }
    }
}
