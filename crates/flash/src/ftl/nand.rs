//! The flash itself: the state that survives a power cut.

use std::collections::HashMap;

use super::{Counters, Geometry, PhysOp, Sink};

/// The number for "no page" or "no block".
pub(super) const NONE: u32 = u32::MAX;

/// Pages that are programmed once after each erasure of their block. Beside its content each has
/// spare bytes with its logical pages and a stamp, which gives the order of programs.
#[derive(Clone)]
pub(super) struct Nand {
    pub(super) geometry: Geometry,
    /// The first logical page of each page; [`NONE`]: erased.
    lpns: Vec<u32>,
    /// The further logical pages of a page, if it has some.
    more: HashMap<u32, Vec<u32>>,
    stamps: Vec<u64>,
    /// The tag of each block, from its first programmed page.
    tags: Vec<u32>,
    /// Number of programmed pages of each block.
    used: Vec<u32>,
    /// Number of erasures of each block.
    erases: Vec<u32>,
    /// The last stamp that was given.
    stamp: u64,
    /// Steps until the power is cut; `None`: no cut.
    left: Option<u64>,
    /// The same from the next time on that the power is turned on.
    next_left: Option<u64>,
    pub(super) counters: Counters,
}

impl Nand {
    /// New flash, all erased.
    pub(super) fn new(geometry: Geometry) -> Nand {
        let (pages, blocks) = (geometry.pages() as usize, geometry.blocks as usize);
        Nand {
            geometry,
            lpns: vec![NONE; pages],
            more: HashMap::new(),
            stamps: vec![0; pages],
            tags: vec![NONE; blocks],
            used: vec![0; blocks],
            erases: vec![0; blocks],
            stamp: 0,
            left: None,
            next_left: None,
            counters: Counters::default(),
        }
    }

    /// Takes a step, if there is power for it.
    fn step(&mut self) -> bool {
        match &mut self.left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Cuts the power after `steps` steps; without power, after as many once it is on again.
    pub(super) fn cut_after(&mut self, steps: u64) {
        match self.has_power() {
            true => self.left = Some(steps),
            false => self.next_left = Some(steps),
        }
    }

    /// Whether there is power.
    pub(super) fn has_power(&self) -> bool {
        self.left != Some(0)
    }

    /// Turns the power on.
    pub(super) fn power_on(&mut self) {
        self.left = self.next_left.take();
    }

    fn put(&mut self, page: u32, lpns: &[u32], tag: u32) {
        let at = page as usize;
        debug_assert_eq!(self.lpns[at], NONE, "page {page} is programmed already");
        self.stamp += 1;
        self.stamps[at] = self.stamp;
        if let [first, others @ ..] = lpns {
            self.lpns[at] = *first;
            if !others.is_empty() {
                self.more.insert(page, others.to_vec());
            }
        }
        let block = self.geometry.block_of(page) as usize;
        self.used[block] += 1;
        self.tags[block] = tag;
        self.counters.programs += 1;
    }

    /// Programs an erased page with the host's write to `lpn`.
    pub(super) fn program(&mut self, page: u32, lpn: u32, tag: u32, ops: &mut dyn Sink) {
        if self.step() {
            self.put(page, &[lpn], tag);
            ops.op(PhysOp::Program { page, lpn });
        }
    }

    /// Programs the erased page `to` with the content of `from`, for these logical pages.
    pub(super) fn copy(&mut self, from: u32, to: u32, lpns: &[u32], tag: u32, ops: &mut dyn Sink) {
        if self.step() {
            self.put(to, lpns, tag);
            self.counters.moved += 1;
            ops.op(PhysOp::Copy { from, to });
        }
    }

    /// Erases a block.
    pub(super) fn erase(&mut self, block: u32, ops: &mut dyn Sink) {
        if !self.step() {
            return;
        }
        let first = self.geometry.first_page(block) as usize;
        let pages = first..first + self.geometry.block_pages as usize;
        self.lpns[pages.clone()].fill(NONE);
        if !self.more.is_empty() {
            for page in pages {
                self.more.remove(&(page as u32));
            }
        }
        self.used[block as usize] = 0;
        self.tags[block as usize] = NONE;
        self.erases[block as usize] += 1;
        self.counters.erases += 1;
        ops.op(PhysOp::Erase { block });
    }

    /// Programs a page of the mapping. Gives its stamp, or `None` without power. These pages are in
    /// blocks of their own, used in turn.
    pub(super) fn program_map(&mut self, ops: &mut dyn Sink) -> Option<u64> {
        if !self.step() {
            return None;
        }
        self.stamp += 1;
        self.counters.programs += 1;
        self.counters.map_programs += 1;
        ops.op(PhysOp::ProgramMap);
        if self
            .counters
            .map_programs
            .is_multiple_of(u64::from(self.geometry.block_pages))
        {
            self.counters.map_erases += 1;
            ops.op(PhysOp::EraseMap);
        }
        Some(self.stamp)
    }

    /// Whether the page can be programmed.
    pub(super) fn is_erased(&self, page: u32) -> bool {
        self.lpns[page as usize] == NONE
    }

    /// The logical pages of a page; none if it is erased.
    pub(super) fn lpns(&self, page: u32) -> impl Iterator<Item = u32> + '_ {
        let first = Some(self.lpns[page as usize]).filter(|lpn| *lpn != NONE);
        let more = self.more.get(&page).filter(|_| first.is_some());
        first.into_iter().chain(more.into_iter().flatten().copied())
    }

    /// The stamp of a page.
    pub(super) fn stamp(&self, page: u32) -> u64 {
        self.stamps[page as usize]
    }

    /// The programmed pages in the order of their stamps.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let all = 0..self.geometry.pages();
        let mut pages: Vec<u32> = all.filter(|p| !self.is_erased(*p)).collect();
        pages.sort_unstable_by_key(|p| self.stamp(*p));
        pages
    }

    /// The tag of a block's pages.
    pub(super) fn tag(&self, block: u32) -> u32 {
        self.tags[block as usize]
    }

    /// Number of programmed pages of a block.
    pub(super) fn used(&self, block: u32) -> u32 {
        self.used[block as usize]
    }

    /// Number of erasures of a block.
    pub(super) fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }
}
