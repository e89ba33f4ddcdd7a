//! The slow version of GreedyDual by erase block: it computes everything anew each time.

use stetfs_cache::{Frame, Shape};

use crate::Slow;

const UNIT: u64 = 1024;

#[derive(Clone, Copy)]
struct Page {
    nr: u64,
    slot: u32,
    value: u64,
    last: u64,
    uses: u64,
    dirty: bool,
}

pub struct GdErase {
    shape: Shape,
    pages: Vec<Page>,
    level: u64,
    now: u64,
}

impl GdErase {
    pub fn new(shape: Shape) -> GdErase {
        GdErase {
            shape,
            pages: Vec::new(),
            level: 0,
            now: 0,
        }
    }

    /// The clean page with the least value: value, slot, number.
    fn clean(&self) -> Option<(u64, u32, u64)> {
        let clean = self.pages.iter().filter(|p| !p.dirty);
        clean.map(|p| (p.value, p.slot, p.nr)).min()
    }

    fn group(&self, block: u64) -> Vec<Page> {
        let mine = |p: &&Page| p.dirty && p.nr / self.shape.erase_block == block;
        let mut pages: Vec<Page> = self.pages.iter().filter(mine).copied().collect();
        pages.sort_by_key(|p| p.nr);
        pages
    }

    /// The cheapest group: value and erase block.
    fn cheapest(&self) -> Option<(u64, u64)> {
        let dirty = self.pages.iter().filter(|p| p.dirty);
        dirty
            .map(|p| {
                let block = p.nr / self.shape.erase_block;
                let group = self.group(block);
                let n = group.len() as u64;
                let mean = group.iter().map(|p| p.value).sum::<u64>() / n;
                let (costs, size) = (self.shape.costs, self.shape.erase_block);
                let visit = u64::from(costs.visit) * UNIT / n;
                let rest = u64::from(costs.rest) * UNIT * (size - n) / size;
                (mean + visit + rest, block)
            })
            .min()
    }

    fn due(&self, block: u64) -> Vec<Page> {
        let group = self.group(block);
        let n = group.len() as u64;
        let mean = group.iter().map(|p| p.value).sum::<u64>() / n;
        let whole = n * 8 >= self.shape.erase_block * 7;
        let due = group
            .into_iter()
            .filter(|p| whole || p.uses < 2 || p.value <= mean);
        due.collect()
    }

    /// The group that is written back before any block can leave, if there is one.
    fn first(&self) -> Option<(u64, u64)> {
        let group = self.cheapest()?;
        match self.clean() {
            Some((value, ..)) if value <= group.0 => None,
            _ => Some(group),
        }
    }
}

impl Slow for GdErase {
    fn insert(&mut self, frame: Frame, write: bool) {
        self.pages.push(Page {
            nr: frame.nr,
            slot: frame.slot,
            value: 0,
            last: 0,
            uses: 0,
            dirty: false,
        });
        self.used(frame.nr, write);
    }
    fn used(&mut self, nr: u64, write: bool) {
        self.now += 1;
        let page = self.pages.iter_mut().find(|p| p.nr == nr).unwrap();
        if page.uses == 0 || self.now - page.last > self.shape.capacity as u64 / 16 {
            page.uses = (page.uses + 1).min(3);
        }
        page.last = self.now;
        page.dirty |= write;
        let costs = self.shape.costs;
        let cost = if page.dirty { costs.write } else { costs.read };
        page.value = self.level + page.uses * u64::from(cost) * UNIT;
    }
    fn written(&mut self, nr: u64) {
        let costs = self.shape.costs;
        let page = self.pages.iter_mut().find(|p| p.nr == nr).unwrap();
        page.dirty = false;
        page.value -= page.uses * u64::from(costs.write - costs.read) * UNIT;
    }
    fn removed(&mut self, nr: u64) {
        self.pages.retain(|p| p.nr != nr);
    }
    fn write(&self) -> Vec<u64> {
        let due = self.first().map(|(_, block)| self.due(block));
        due.unwrap_or_default().iter().map(|p| p.nr).collect()
    }
    fn choose(&mut self) -> Vec<u64> {
        let (value, victim) = match self.first() {
            Some((value, block)) => {
                let due = self.due(block);
                let coldest = due.iter().min_by_key(|p| (p.value, p.slot)).unwrap();
                (value, coldest.nr)
            }
            None => {
                let (value, _, nr) = self.clean().unwrap();
                (value, nr)
            }
        };
        self.level = self.level.max(value);
        vec![victim]
    }
}
