//! FAST: blocks in place, with log blocks for what is written again (Lee et al., ToECS 2007).

use std::collections::{BTreeSet, VecDeque};

use super::checks::{Checked, Checks};
use super::layer::bounds;
use super::maplog::MapLog;
use super::nand::{NONE, Nand};
use super::tables::Tables;
use super::{BlockView, Counters, Ftl, FtlError, Geometry, Role, Sink};

/// Free blocks that log blocks leave: one to put a block together in, one for a logical block's
/// first data.
const RESERVE: u32 = 2;

/// What the pages of a log block for random writes are programmed with; those of the others with
/// their logical block.
const RANDOM: u32 = NONE - 1;

/// The log block for writes in sequence.
#[derive(Clone, Copy)]
struct Sequential {
    block: u32,
    /// The logical block whose pages it gets, each in its own place.
    owner: u32,
    /// The next place.
    next: u32,
}

/// A FAST layer. A logical block has a data block, in which each of its pages has one place. What
/// is written to a place that is taken goes to a log block: the sequential one where it begins a
/// block or goes on with it, else one of the others, which take pages of all. When these are used
/// up the oldest is emptied: every logical block with a page in it is put together anew.
///
/// 1. A block is free, a logical block's data, the sequential log block, or in the queue of random
///    log blocks.
/// 2. A live page is in its place of its data block or of the sequential log block, or in a random
///    log block.
/// 3. While a logical block owns the sequential log block nothing is written to its data block:
///    that one is older throughout.
/// 4. `RESERVE` blocks are free before a write.
///
/// A write to the owner of the sequential log block that does not go on with it ends it, as in the
/// paper's pseudo-code. Pages of a block are programmed in any order (SLC).
#[derive(Clone)]
pub struct Fast {
    nand: Nand,
    log: MapLog,
    tables: Tables,
    /// By erasures: the least worn is used first.
    free: BTreeSet<(u32, u32)>,
    /// By logical block: its data block.
    data: Vec<u32>,
    sequential: Option<Sequential>,
    /// Log blocks for random writes, the oldest first. The last is being filled.
    random: VecDeque<u32>,
    /// Pages used in the last.
    filled: u32,
    /// Random log blocks at most.
    most: usize,
    checks: Checks,
}

impl Fast {
    /// An erased device.
    pub fn new(geometry: Geometry) -> Fast {
        Fast {
            nand: Nand::new(geometry),
            log: MapLog::default(),
            tables: Tables::new(geometry),
            free: (0..geometry.blocks).map(|block| (0, block)).collect(),
            data: vec![NONE; geometry.logical_blocks() as usize],
            sequential: None,
            random: VecDeque::new(),
            filled: 0,
            // The spare ones, but for the sequential one and the reserve.
            most: geometry.spare_blocks().saturating_sub(1 + RESERVE).max(1) as usize,
            checks: Checks::default(),
        }
    }

    /// The same with at most so many log blocks for random writes, at least one, and no more than
    /// there are spare ones for.
    pub fn with_log(self, blocks: u32) -> Fast {
        let most = (blocks.max(1) as usize).min(self.most);
        Fast { most, ..self }
    }

    fn take_free(&mut self) -> u32 {
        match self.free.pop_first() {
            Some((_, block)) => block,
            // (4)
            None => unreachable!("no free block"),
        }
    }

    /// Erases a block in which nothing lives.
    fn give_back(&mut self, block: u32, ops: &mut dyn Sink) {
        debug_assert_eq!(self.tables.live(block), 0);
        self.log.flush(&mut self.nand, &self.tables, ops);
        self.nand.erase(block, ops);
        self.free.insert((self.nand.erases(block), block));
    }

    /// The place of a logical page in its block.
    fn place(&self, lpn: u32) -> (u32, u32) {
        let pages = self.nand.geometry.block_pages;
        (lpn / pages, lpn % pages)
    }

    /// Logical pages of a block; the last may have fewer.
    fn lpns(&self, owner: u32) -> std::ops::Range<u32> {
        let pages = self.nand.geometry.block_pages;
        let first = owner * pages;
        first..(first + pages).min(self.nand.geometry.logical_pages)
    }

    fn write_page(&mut self, lpn: u32, ops: &mut dyn Sink) {
        let (owner, place) = self.place(lpn);
        let owned = self.sequential.filter(|s| s.owner == owner);
        if owned.is_none_or(|s| s.next != place) {
            if owned.is_some() {
                self.end_sequence(ops);
            }
            if self.data[owner as usize] == NONE {
                self.data[owner as usize] = self.take_free();
            }
            let page = self.nand.geometry.first_page(self.data[owner as usize]) + place;
            if self.nand.is_erased(page) {
                return self.program(lpn, page, owner, ops);
            }
        }
        if place == 0 {
            self.begin_sequence(owner, ops);
        }
        match &mut self.sequential {
            Some(s) if s.owner == owner && s.next == place => {
                s.next += 1;
                let page = self.nand.geometry.first_page(s.block) + place;
                self.program(lpn, page, owner, ops);
            }
            _ => {
                let page = self.next_random(ops);
                self.program(lpn, page, RANDOM, ops);
            }
        }
    }

    fn program(&mut self, lpn: u32, page: u32, tag: u32, ops: &mut dyn Sink) {
        self.nand.program(page, lpn, tag, ops);
        self.tables.release(lpn);
        self.tables.bind(lpn, page);
    }

    /// Moves the current content of a logical page.
    fn move_page(&mut self, lpn: u32, from: u32, to: u32, owner: u32, ops: &mut dyn Sink) {
        self.nand.copy(from, to, &[lpn], owner, ops);
        self.tables.rebind(from, to, &[lpn]);
    }

    /// An empty sequential log block for this logical block.
    fn begin_sequence(&mut self, owner: u32, ops: &mut dyn Sink) {
        self.end_sequence(ops);
        let block = self.take_free();
        self.sequential = Some(Sequential {
            block,
            owner,
            next: 0,
        });
    }

    /// The sequential log block becomes its owner's data block: as it is when it is full, else with
    /// the rest moved into it.
    fn end_sequence(&mut self, ops: &mut dyn Sink) {
        let Some(Sequential { block, owner, next }) = self.sequential.take() else {
            return;
        };
        let lpns = self.lpns(owner);
        let rest = lpns.start + next..lpns.end;
        match rest.is_empty() {
            true => self.nand.counters.merges.switch += 1,
            false => self.nand.counters.merges.partial += 1,
        }
        let first = self.nand.geometry.first_page(block);
        for lpn in rest {
            if let Some(from) = self.tables.page_of(lpn) {
                self.move_page(lpn, from, first + (lpn - lpns.start), owner, ops);
            }
        }
        // Nothing lives in the old one (3).
        let old = std::mem::replace(&mut self.data[owner as usize], block);
        if old != NONE {
            self.give_back(old, ops);
        }
    }

    /// The next page of a random log block.
    fn next_random(&mut self, ops: &mut dyn Sink) -> u32 {
        let pages = self.nand.geometry.block_pages;
        if self.random.is_empty() || self.filled == pages {
            if self.random.len() >= self.most {
                self.empty_oldest(ops);
            }
            let block = self.take_free();
            self.random.push_back(block);
            self.filled = 0;
        }
        let block = self.random.back().copied().unwrap_or_default();
        self.filled += 1;
        self.nand.geometry.first_page(block) + self.filled - 1
    }

    /// Empties the oldest random log block: each logical block with a page in it is put together
    /// anew.
    fn empty_oldest(&mut self, ops: &mut dyn Sink) {
        let Some(victim) = self.random.pop_front() else {
            return;
        };
        self.nand.counters.collections += 1;
        let first = self.nand.geometry.first_page(victim);
        let mut lpns = Vec::new();
        for page in first..first + self.nand.geometry.block_pages {
            if self.tables.live(victim) == 0 {
                break;
            }
            self.tables.referrers(page, &mut lpns);
            if let Some(lpn) = lpns.first() {
                let (owner, _) = self.place(*lpn);
                self.put_together(owner, ops);
            }
        }
        self.give_back(victim, ops);
    }

    /// A full merge: all pages of a logical block into a free block, which becomes its data block.
    fn put_together(&mut self, owner: u32, ops: &mut dyn Sink) {
        self.nand.counters.merges.full += 1;
        let block = self.take_free();
        let first = self.nand.geometry.first_page(block);
        let lpns = self.lpns(owner);
        for lpn in lpns.clone() {
            if let Some(from) = self.tables.page_of(lpn) {
                self.move_page(lpn, from, first + (lpn - lpns.start), owner, ops);
            }
        }
        let old = std::mem::replace(&mut self.data[owner as usize], block);
        if old != NONE {
            self.give_back(old, ops);
        }
        // What was in sequence is in the new block as well.
        if let Some(s) = self.sequential.filter(|s| s.owner == owner) {
            self.sequential = None;
            self.give_back(s.block, ops);
        }
    }

    /// Erases the data blocks in which nothing lives any more, of the logical blocks from one
    /// page's to another's.
    fn drop_empty(&mut self, first: u32, last: u32, ops: &mut dyn Sink) {
        for owner in self.place(first).0..=self.place(last).0 {
            let block = self.data[owner as usize];
            let owned = self.sequential.is_some_and(|s| s.owner == owner);
            if block != NONE && !owned && self.tables.live(block) == 0 {
                self.data[owner as usize] = NONE;
                self.give_back(block, ops);
            }
        }
    }

    /// After a restart: which blocks are whose, from what their pages were programmed with.
    fn find_roles(&mut self, ops: &mut dyn Sink) {
        let geometry = self.nand.geometry;
        self.free.clear();
        self.data.fill(NONE);
        self.sequential = None;
        self.random.clear();
        // In the order in which they were begun.
        let first = |nand: &Nand, block: u32| {
            let pages =
                geometry.first_page(block)..geometry.first_page(block) + geometry.block_pages;
            pages
                .filter(|p| !nand.is_erased(*p))
                .map(|p| nand.stamp(p))
                .min()
        };
        let mut blocks: Vec<(Option<u64>, u32)> = (0..geometry.blocks)
            .map(|b| (first(&self.nand, b), b))
            .collect();
        blocks.sort_unstable();
        let mut several = Vec::new();
        for (begun, block) in blocks {
            let tag = self.nand.tag(block);
            if begun.is_none() {
                self.free.insert((self.nand.erases(block), block));
            } else if tag == RANDOM {
                self.random.push_back(block);
                self.filled = self.nand.used(block);
            } else if self.data[tag as usize] == NONE {
                self.data[tag as usize] = block;
            } else {
                several.push((tag, block));
            }
        }
        // A sequence, or a merge, that the power ended: what is in place in neither of the two is
        // nowhere else.
        for (owner, block) in several {
            self.resolve(owner, block, ops);
        }
    }

    /// A logical block has a second block: the younger of the two takes over, with what lives in
    /// the older.
    fn resolve(&mut self, owner: u32, block: u32, ops: &mut dyn Sink) {
        let old = self.data[owner as usize];
        let (from, to) = (
            self.nand.geometry.first_page(old),
            self.nand.geometry.first_page(block),
        );
        for (place, lpn) in (0..).zip(self.lpns(owner)) {
            if self.tables.page_of(lpn) == Some(from + place) {
                self.move_page(lpn, from + place, to + place, owner, ops);
            }
        }
        self.data[owner as usize] = block;
        self.give_back(old, ops);
    }
}

impl Checked for Fast {
    fn checks(&mut self) -> Option<&mut Checks> {
        self.nand.has_power().then_some(&mut self.checks)
    }
}

impl Ftl for Fast {
    fn duplicate(&self) -> Box<dyn Ftl> {
        Box::new(self.clone())
    }

    fn geometry(&self) -> Geometry {
        self.nand.geometry
    }

    fn read(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        self.tables.host_read(lpn, n, &mut self.nand.counters, ops)
    }

    fn write(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        bounds(lpn, n, self.capacity())?;
        self.nand.counters.host_writes += n;
        (lpn as u32..(lpn + n) as u32).for_each(|lpn| self.write_page(lpn, ops));
        Checks::after(self, n);
        Ok(())
    }

    fn trim(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        bounds(lpn, n, self.capacity())?;
        self.nand.counters.host_trims += n;
        if n > 0 {
            for lpn in lpn as u32..(lpn + n) as u32 {
                self.tables.release(lpn);
            }
            self.log.trim(lpn as u32, n as u32);
            self.log.flush_if_long(&mut self.nand, &self.tables, ops);
            self.drop_empty(lpn as u32, (lpn + n - 1) as u32, ops);
        }
        Checks::after(self, n);
        Ok(())
    }

    fn flush(&mut self, ops: &mut dyn Sink) {
        self.nand.counters.flushes += 1;
        self.log.flush(&mut self.nand, &self.tables, ops);
    }

    fn lookup(&self, lpn: u64) -> Option<u32> {
        self.tables.lookup(lpn)
    }

    fn counters(&self) -> Counters {
        self.nand.counters
    }

    fn blocks(&self) -> Vec<BlockView> {
        let mut roles = vec![Role::Free; self.nand.geometry.blocks as usize];
        for block in self.data.iter().filter(|b| **b != NONE) {
            roles[*block as usize] = Role::Data;
        }
        for block in &self.random {
            roles[*block as usize] = Role::Log;
        }
        if let Some(s) = self.sequential {
            roles[s.block as usize] = Role::Sequential;
        }
        let view = |(block, role): (u32, Role)| BlockView {
            role,
            live: self.tables.live(block),
            used: self.nand.used(block),
            erases: self.nand.erases(block),
        };
        (0..).zip(roles).map(view).collect()
    }

    fn restart(&mut self, ops: &mut dyn Sink) {
        self.nand.power_on();
        self.log.restart();
        self.tables = Tables::from_map(self.nand.geometry, &self.log.map(&self.nand));
        self.find_roles(ops);
    }

    fn cut_after(&mut self, steps: u64) {
        self.nand.cut_after(steps);
    }

    fn check(&self) -> Result<(), String> {
        self.tables.check()?;
        let geometry = self.nand.geometry;
        if (self.free.len() as u32) < RESERVE {
            return Err(format!("{} free blocks", self.free.len()));
        }
        // (1)
        let mut uses = vec![0; geometry.blocks as usize];
        for (erases, block) in &self.free {
            uses[*block as usize] += 1;
            if self.nand.used(*block) != 0 || self.nand.erases(*block) != *erases {
                return Err(format!(
                    "block {block} is free, with {} pages",
                    self.nand.used(*block)
                ));
            }
        }
        for block in self.data.iter().filter(|b| **b != NONE).chain(&self.random) {
            uses[*block as usize] += 1;
        }
        if let Some(s) = self.sequential {
            uses[s.block as usize] += 1;
        }
        if let Some((block, uses)) = (0..).zip(uses).find(|(_, uses)| *uses != 1) {
            let block: u32 = block;
            return Err(format!("block {block} has {uses} uses"));
        }
        let random: BTreeSet<u32> = self.random.iter().copied().collect();
        // (2), (3)
        for lpn in 0..geometry.logical_pages {
            let Some(page) = self.tables.page_of(lpn) else {
                continue;
            };
            let ((owner, place), block) = (self.place(lpn), geometry.block_of(page));
            let in_place = page == geometry.first_page(block) + place;
            let right = match self.nand.tag(block) {
                RANDOM => random.contains(&block),
                tag => {
                    let mine = self.data[owner as usize] == block
                        || self
                            .sequential
                            .is_some_and(|s| s.owner == owner && s.block == block);
                    in_place && mine && tag == owner
                }
            };
            if !right || self.nand.is_erased(page) {
                return Err(format!(
                    "logical page {lpn} is at page {page} of block {block}"
                ));
            }
        }
        Ok(())
    }
}
