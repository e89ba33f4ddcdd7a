//! Block-level mapping: the state and the steps that layers with log blocks share.

use std::collections::BTreeSet;
use std::ops::Range;

use super::checks::Checks;
use super::layer::bounds;
use super::maplog::MapLog;
use super::nand::{NONE, Nand};
use super::tables::Tables;
use super::{BlockView, FtlError, Geometry, Role, Sink};

/// Free blocks that log blocks must leave: one for a merge, and one for a logical block's first
/// data.
pub(super) const RESERVE: u32 = 2;

/// The flash, the map, and the data block of each logical block, in which each of its pages has a
/// fixed offset. Log blocks belong to the layer.
///
/// Pages of a data block are programmed in any order (SLC). Their tag is the logical block.
#[derive(Clone)]
pub(super) struct BlockMap {
    pub(super) nand: Nand,
    pub(super) log: MapLog,
    pub(super) tables: Tables,
    /// Free blocks as (erasures, block); the least worn is used first.
    free: BTreeSet<(u32, u32)>,
    /// The data block of each logical block; [`NONE`]: none.
    pub(super) data: Vec<u32>,
    pub(super) checks: Checks,
}

impl BlockMap {
    /// An erased device.
    pub(super) fn new(geometry: Geometry) -> BlockMap {
        BlockMap {
            nand: Nand::new(geometry),
            log: MapLog::default(),
            tables: Tables::new(geometry),
            free: (0..geometry.blocks).map(|block| (0, block)).collect(),
            data: vec![NONE; geometry.logical_blocks() as usize],
            checks: Checks::default(),
        }
    }

    /// Takes the least worn free block.
    pub(super) fn take_free(&mut self) -> u32 {
        match self.free.pop_first() {
            Some((_, block)) => block,
            // The layers keep a reserve.
            None => unreachable!("no free block"),
        }
    }

    /// Erases a block without live pages.
    pub(super) fn give_back(&mut self, block: u32, ops: &mut dyn Sink) {
        debug_assert_eq!(self.tables.live(block), 0);
        self.log.flush(&mut self.nand, &self.tables, ops);
        self.nand.erase(block, ops);
        self.free.insert((self.nand.erases(block), block));
    }

    /// The logical block of a logical page, and its offset there.
    pub(super) fn place(&self, lpn: u32) -> (u32, u32) {
        let pages = self.nand.geometry.block_pages;
        (lpn / pages, lpn % pages)
    }

    /// The logical pages of a logical block; the last block may have fewer.
    pub(super) fn lpns(&self, owner: u32) -> Range<u32> {
        let pages = self.nand.geometry.block_pages;
        let first = owner * pages;
        first..(first + pages).min(self.nand.geometry.logical_pages)
    }

    /// The page at an offset of a logical block's data block if it is erased. Takes a data block if
    /// there is none.
    pub(super) fn erased_in_place(&mut self, owner: u32, place: u32) -> Option<u32> {
        if self.data[owner as usize] == NONE {
            self.data[owner as usize] = self.take_free();
        }
        let page = self.nand.geometry.first_page(self.data[owner as usize]) + place;
        self.nand.is_erased(page).then_some(page)
    }

    /// Programs an erased page with the host's write.
    pub(super) fn program(&mut self, lpn: u32, page: u32, tag: u32, ops: &mut dyn Sink) {
        self.nand.program(page, lpn, tag, ops);
        self.tables.release(lpn);
        self.tables.bind(lpn, page);
    }

    /// Moves the current content of a logical block's pages, from an offset on, to their offsets in
    /// `block`: those that are in other blocks which `is_source` accepts.
    pub(super) fn gather(
        &mut self,
        owner: u32,
        from: u32,
        block: u32,
        is_source: impl Fn(u32) -> bool,
        ops: &mut dyn Sink,
    ) {
        let geometry = self.nand.geometry;
        let (lpns, first) = (self.lpns(owner), geometry.first_page(block));
        for lpn in lpns.start + from..lpns.end {
            let Some(page) = self.tables.page_of(lpn) else {
                continue;
            };
            let source = geometry.block_of(page);
            if source != block && is_source(source) {
                let to = first + (lpn - lpns.start);
                self.nand.copy(page, to, &[lpn], owner, ops);
                self.tables.rebind(page, to, &[lpn]);
            }
        }
    }

    /// Makes `block` the data block of a logical block, and erases the former one, which has no
    /// live pages.
    pub(super) fn replace(&mut self, owner: u32, block: u32, ops: &mut dyn Sink) {
        let old = std::mem::replace(&mut self.data[owner as usize], block);
        if old != NONE {
            self.give_back(old, ops);
        }
    }

    /// Erases the data block of a logical block, which has no live pages.
    pub(super) fn drop_data(&mut self, owner: u32, ops: &mut dyn Sink) {
        self.replace(owner, NONE, ops);
    }

    /// Unmaps logical pages. Gives the logical blocks that they are in.
    ///
    /// # Errors
    /// Pages beyond the end.
    pub(super) fn trim(
        &mut self,
        lpn: u64,
        n: u64,
        ops: &mut dyn Sink,
    ) -> Result<Range<u32>, FtlError> {
        bounds(lpn, n, self.nand.geometry.logical_pages.into())?;
        self.nand.counters.host_trims += n;
        if n == 0 {
            return Ok(0..0);
        }
        // Checked against the end, which is a `u32`.
        let (first, end) = (lpn as u32, (lpn + n) as u32);
        for lpn in first..end {
            self.tables.release(lpn);
        }
        self.log.trim(first, end - first);
        self.log.flush_if_long(&mut self.nand, &self.tables, ops);
        Ok(self.place(first).0..self.place(end - 1).0 + 1)
    }

    /// Logs what waits for a flush, and counts the flush.
    pub(super) fn flush(&mut self, ops: &mut dyn Sink) {
        self.nand.counters.flushes += 1;
        self.log.flush(&mut self.nand, &self.tables, ops);
    }

    /// Restarts after a power cut: rebuilds the map and the free blocks, and forgets the data
    /// blocks. Gives the programmed blocks with their tags in the order of their first programs.
    pub(super) fn restart(&mut self) -> Vec<(u32, u32)> {
        self.nand.power_on();
        self.log.restart();
        let geometry = self.nand.geometry;
        self.tables = Tables::from_map(geometry, &self.log.map(&self.nand));
        self.free.clear();
        self.data.fill(NONE);
        let mut programmed = Vec::new();
        for block in 0..geometry.blocks {
            let pages = self.pages(block).filter(|p| !self.nand.is_erased(*p));
            match pages.map(|p| self.nand.stamp(p)).min() {
                Some(begun) => programmed.push((begun, block)),
                None => {
                    self.free.insert((self.nand.erases(block), block));
                }
            }
        }
        programmed.sort_unstable();
        let tagged = |(_, block)| (self.nand.tag(block), block);
        programmed.into_iter().map(tagged).collect()
    }

    /// The pages of a block.
    pub(super) fn pages(&self, block: u32) -> Range<u32> {
        let first = self.nand.geometry.first_page(block);
        first..first + self.nand.geometry.block_pages
    }

    /// The erase blocks; `logs` are the log blocks with their roles.
    pub(super) fn views(&self, logs: impl Iterator<Item = (u32, Role)>) -> Vec<BlockView> {
        let mut roles = vec![Role::Free; self.nand.geometry.blocks as usize];
        for block in self.data.iter().filter(|b| **b != NONE) {
            roles[*block as usize] = Role::Data;
        }
        for (block, role) in logs {
            roles[block as usize] = role;
        }
        let view = |(block, role): (u32, Role)| BlockView {
            role,
            live: self.tables.live(block),
            used: self.nand.used(block),
            erases: self.nand.erases(block),
        };
        (0..).zip(roles).map(view).collect()
    }

    /// Checks the tables, the reserve, that each block is free, a data block or one of `logs`, and
    /// that each live page is programmed, and at its offset in its data block or where
    /// `is_in_log` accepts it: logical page, its logical block, page.
    pub(super) fn check(
        &self,
        logs: impl Iterator<Item = u32>,
        is_in_log: impl Fn(u32, u32, u32) -> bool,
    ) -> Result<(), String> {
        self.tables.check()?;
        let geometry = self.nand.geometry;
        if (self.free.len() as u32) < RESERVE {
            return Err(format!("{} free blocks", self.free.len()));
        }
        let mut uses = vec![0; geometry.blocks as usize];
        for (erases, block) in &self.free {
            uses[*block as usize] += 1;
            let used = self.nand.used(*block);
            if used != 0 || self.nand.erases(*block) != *erases {
                return Err(format!("block {block} is free, with {used} pages"));
            }
        }
        let data = self.data.iter().copied().filter(|b| *b != NONE);
        for block in data.chain(logs) {
            uses[block as usize] += 1;
        }
        if let Some((block, uses)) = (0..).zip(uses).find(|(_, uses)| *uses != 1) {
            let block: u32 = block;
            return Err(format!("block {block} has {uses} uses"));
        }
        for lpn in 0..geometry.logical_pages {
            let Some(page) = self.tables.page_of(lpn) else {
                continue;
            };
            let ((owner, place), block) = (self.place(lpn), geometry.block_of(page));
            let in_place = page == geometry.first_page(block) + place;
            let in_data =
                self.data[owner as usize] == block && in_place && self.nand.tag(block) == owner;
            if self.nand.is_erased(page) || !(in_data || is_in_log(lpn, owner, page)) {
                return Err(format!(
                    "logical page {lpn} is at page {page} of block {block}"
                ));
            }
        }
        Ok(())
    }
}
