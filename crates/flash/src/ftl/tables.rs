//! The map of logical to physical pages, in both directions.

use std::collections::HashMap;

use super::layer::bounds;
use super::nand::NONE;
use super::{Counters, FtlError, Geometry, PAGE, PhysOp, Sink};

/// The map, the references back, and the number of live pages of each block.
///
/// 1. A logical page is mapped to at most one physical page.
/// 2. The references of a physical page are exactly the logical pages mapped to it.
/// 3. The live count of a block is the number of its pages with a reference.
#[derive(Clone)]
pub(super) struct Tables {
    geometry: Geometry,
    forth: Vec<u32>,
    /// The first logical page that is mapped to each page.
    back: Vec<u32>,
    /// The further logical pages of a page, if it has some.
    others: HashMap<u32, Vec<u32>>,
    live: Vec<u32>,
}

impl Tables {
    /// A map without mapped pages.
    pub(super) fn new(geometry: Geometry) -> Tables {
        Tables {
            geometry,
            forth: vec![NONE; geometry.logical_pages as usize],
            back: vec![NONE; geometry.pages() as usize],
            others: HashMap::new(),
            live: vec![0; geometry.blocks as usize],
        }
    }

    /// The tables of a map; [`NONE`]: unmapped.
    pub(super) fn from_map(geometry: Geometry, forth: &[u32]) -> Tables {
        let mut tables = Tables::new(geometry);
        for (lpn, page) in (0..).zip(forth) {
            if *page != NONE {
                tables.bind(lpn, *page);
            }
        }
        tables
    }

    /// The physical page of a logical page.
    pub(super) fn page_of(&self, lpn: u32) -> Option<u32> {
        Some(self.forth[lpn as usize]).filter(|page| *page != NONE)
    }

    /// The physical page of a logical page that may be beyond the end.
    pub(super) fn lookup(&self, lpn: u64) -> Option<u32> {
        let lpn = u32::try_from(lpn).ok()?;
        (lpn < self.geometry.logical_pages).then(|| self.page_of(lpn))?
    }

    /// Reads pages for the host, and counts them.
    pub(super) fn host_read(
        &self,
        lpn: u64,
        n: u64,
        counters: &mut Counters,
        ops: &mut dyn Sink,
    ) -> Result<(), FtlError> {
        bounds(lpn, n, u64::from(self.geometry.logical_pages))?;
        counters.host_reads += n;
        for lpn in lpn..lpn + n {
            if let Some(page) = self.page_of(lpn as u32) {
                ops.op(PhysOp::Read { page });
            }
        }
        Ok(())
    }

    /// The map of some logical pages; [`NONE`]: unmapped.
    pub(super) fn map(&self, lpns: std::ops::Range<u32>) -> &[u32] {
        &self.forth[lpns.start as usize..lpns.end as usize]
    }

    /// Whether a logical page is mapped to a page.
    pub(super) fn is_live(&self, page: u32) -> bool {
        self.back[page as usize] != NONE
    }

    /// Writes the logical pages that are mapped to a page into `list`, replacing its content.
    pub(super) fn referrers(&self, page: u32, list: &mut Vec<u32>) {
        list.clear();
        if self.is_live(page) {
            list.push(self.back[page as usize]);
            if let Some(others) = self.others.get(&page) {
                list.extend(others);
            }
        }
    }

    /// Number of logical pages that are mapped to a page.
    pub(super) fn references(&self, page: u32) -> usize {
        match self.is_live(page) {
            true => 1 + self.others.get(&page).map_or(0, Vec::len),
            false => 0,
        }
    }

    /// Sum over all pages of the logical pages beyond the first one.
    pub(super) fn shared(&self) -> u64 {
        self.others.values().map(|o| o.len() as u64).sum()
    }

    /// Live pages of a block.
    pub(super) fn live(&self, block: u32) -> u32 {
        self.live[block as usize]
    }

    /// Maps a logical page that is not mapped.
    pub(super) fn bind(&mut self, lpn: u32, page: u32) {
        debug_assert_eq!(self.forth[lpn as usize], NONE, "page {lpn} is mapped");
        self.forth[lpn as usize] = page;
        let back = &mut self.back[page as usize];
        if *back == NONE {
            *back = lpn;
            self.live[self.geometry.block_of(page) as usize] += 1;
        } else {
            self.others.entry(page).or_default().push(lpn);
        }
    }

    /// Unmaps a logical page. Gives the block that thereby lost a live page.
    pub(super) fn release(&mut self, lpn: u32) -> Option<u32> {
        let page = std::mem::replace(&mut self.forth[lpn as usize], NONE);
        if page == NONE {
            return None;
        }
        if !self.others.is_empty()
            && let Some(others) = self.others.get_mut(&page)
        {
            let back = &mut self.back[page as usize];
            match others.iter().position(|o| *o == lpn) {
                Some(at) => {
                    others.swap_remove(at);
                }
                None => *back = others.pop().unwrap_or(NONE),
            }
            if others.is_empty() {
                self.others.remove(&page);
            }
            return None;
        }
        self.back[page as usize] = NONE;
        let block = self.geometry.block_of(page);
        self.live[block as usize] -= 1;
        Some(block)
    }

    /// Maps all logical pages of `from` to `to`, which has none.
    pub(super) fn rebind(&mut self, from: u32, to: u32, lpns: &[u32]) {
        debug_assert!(!self.is_live(to));
        for lpn in lpns {
            self.forth[*lpn as usize] = to;
        }
        self.back[to as usize] = std::mem::replace(&mut self.back[from as usize], NONE);
        if lpns.len() > 1
            && let Some(others) = self.others.remove(&from)
        {
            self.others.insert(to, others);
        }
        self.live[self.geometry.block_of(from) as usize] -= 1;
        self.live[self.geometry.block_of(to) as usize] += 1;
    }

    /// Checks that 1–3 hold.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut list = Vec::new();
        let mut live = vec![0; self.live.len()];
        let mut referred = 0;
        for page in 0..self.geometry.pages() {
            self.referrers(page, &mut list);
            referred += list.len();
            live[self.geometry.block_of(page) as usize] += u32::from(!list.is_empty());
            for lpn in &list {
                if self.forth[*lpn as usize] != page {
                    let is = self.forth[*lpn as usize];
                    return Err(format!(
                        "page {page} says logical page {lpn}, which is at {is}"
                    ));
                }
            }
        }
        // Each reference back equals a mapping, so equal numbers mean that all do.
        let mapped = self.forth.iter().filter(|p| **p != NONE).count();
        if mapped != referred {
            return Err(format!(
                "{mapped} logical pages are mapped, {referred} are referred back to"
            ));
        }
        if let Some(dead) = self.others.keys().find(|p| !self.is_live(**p)) {
            return Err(format!(
                "page {dead} has further references without a first"
            ));
        }
        match (0..)
            .zip(live.iter().zip(&self.live))
            .find(|(_, (a, b))| a != b)
        {
            Some((block, (is, said))) => {
                Err(format!("block {block} has {is} live pages, not {said}"))
            }
            None => Ok(()),
        }
    }
}

/// Entries of the table that a page of the flash holds.
pub(super) const TABLE_ENTRIES: u32 = (PAGE / 4) as u32;
