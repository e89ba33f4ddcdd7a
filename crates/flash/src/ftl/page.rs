//! Page-level mapping: any logical page at any place, with greedy garbage collection.

use std::collections::{BTreeSet, HashMap};

use super::checks::{Checked, Checks};
use super::layer::bounds;
use super::maplog::{CHANGES, Change, MapLog};
use super::nand::{NONE, Nand};
use super::tables::Tables;
use super::victims::Victims;
use super::{BlockView, Counters, Ftl, FtlError, Geometry, Role, ShareLimits, Sharing, Sink};

/// Free blocks that collection must keep: one for the host's writes, and one to move pages into.
const RESERVE: usize = 2;

/// A block that is being filled.
#[derive(Clone, Copy, Default)]
struct Frontier {
    /// The block and the next page in it; `None` before the first.
    at: Option<(u32, u32)>,
}

/// The source of the pages of a frontier; pages of the two sources have different lifetimes.
#[derive(Clone, Copy)]
enum Stream {
    Host,
    Moved,
}

/// A page-level layer.
///
/// 1. A block is free, open (at most one for each stream), or full; the full ones are the
///    candidates for collection.
/// 2. Pages of a block are programmed in order.
/// 3. Before a write takes a free block there are `RESERVE` free blocks, so collection always has
///    one to move pages into.
#[derive(Clone)]
pub struct PageMap {
    nand: Nand,
    log: MapLog,
    tables: Tables,
    /// Free blocks as (erasures, block); the least worn is used first.
    free: BTreeSet<(u32, u32)>,
    open: [Frontier; 2],
    victims: Victims,
    limits: ShareLimits,
    /// The logical pages of the page that is being moved.
    referrers: Vec<u32>,
    checks: Checks,
}

impl PageMap {
    /// An erased device.
    pub fn new(geometry: Geometry) -> PageMap {
        PageMap {
            nand: Nand::new(geometry),
            log: MapLog::default(),
            tables: Tables::new(geometry),
            free: (0..geometry.blocks).map(|block| (0, block)).collect(),
            open: [Frontier::default(); 2],
            victims: Victims::new(geometry.blocks, geometry.block_pages),
            limits: ShareLimits {
                pairs: 256,
                references: 8,
            },
            referrers: Vec::new(),
            checks: Checks::default(),
        }
    }

    /// The same layer with these limits of shares; pairs are at most 508, references at least 1.
    pub fn with_limits(mut self, limits: ShareLimits) -> PageMap {
        self.limits = ShareLimits {
            pairs: limits.pairs.clamp(1, CHANGES as u32),
            references: limits.references.max(1),
        };
        self
    }

    /// The next page of a stream, in a new block if necessary.
    fn place(&mut self, stream: Stream, ops: &mut dyn Sink) -> u32 {
        let pages = self.nand.geometry.block_pages;
        let open = self.open[stream as usize].at;
        if open.is_none_or(|(_, next)| next >= pages) {
            if matches!(stream, Stream::Host) {
                self.make_room(ops);
            }
            self.close(stream);
            self.open[stream as usize].at = self.free.pop_first().map(|(_, block)| (block, 0));
        }
        let Some((block, next)) = &mut self.open[stream as usize].at else {
            // The reserve guarantees a free block (3).
            unreachable!("no free block");
        };
        let page = self.nand.geometry.first_page(*block) + *next;
        *next += 1;
        page
    }

    /// Makes a full block a candidate for collection.
    fn close(&mut self, stream: Stream) {
        if let Some((block, _)) = self.open[stream as usize].at.take() {
            self.victims.insert(block, self.tables.live(block));
        }
    }

    /// Collects victims until there is a reserve.
    fn make_room(&mut self, ops: &mut dyn Sink) {
        while self.free.len() < RESERVE {
            let Some(victim) = self.victims.least() else {
                return;
            };
            self.collect(victim, ops);
        }
    }

    /// Moves the live pages of a block, and erases it.
    fn collect(&mut self, victim: u32, ops: &mut dyn Sink) {
        self.victims.remove(victim);
        self.nand.counters.collections += 1;
        let first = self.nand.geometry.first_page(victim);
        let mut lpns = std::mem::take(&mut self.referrers);
        for page in first..first + self.nand.geometry.block_pages {
            if self.tables.live(victim) == 0 {
                break;
            }
            if self.tables.is_live(page) {
                self.tables.referrers(page, &mut lpns);
                let to = self.place(Stream::Moved, ops);
                self.nand.copy(page, to, &lpns, NONE, ops);
                self.tables.rebind(page, to, &lpns);
            }
        }
        self.referrers = lpns;
        self.log.flush(&mut self.nand, &self.tables, ops);
        self.nand.erase(victim, ops);
        self.free.insert((self.nand.erases(victim), victim));
    }

    /// Unmaps a logical page.
    fn release(&mut self, lpn: u32) {
        if let Some(block) = self.tables.release(lpn) {
            self.victims.change(block, self.tables.live(block));
        }
    }

    /// The physical page of each pair's source (`None`: unmapped), if the batch is allowed.
    fn sources(&self, pairs: &[(u64, u64)]) -> Result<Vec<(u32, Option<u32>)>, FtlError> {
        if pairs.len() as u64 > u64::from(self.limits.pairs) {
            return Err(FtlError::TooManyPairs {
                pairs: pairs.len() as u64,
                limit: u64::from(self.limits.pairs),
            });
        }
        let mut destinations = BTreeSet::new();
        for (dst, src) in pairs {
            bounds(*dst, 1, self.capacity())?;
            bounds(*src, 1, self.capacity())?;
            if !destinations.insert(*dst) {
                return Err(FtlError::Overlap { lpn: *dst });
            }
        }
        // Number of additional references to each page.
        let mut more: HashMap<u32, usize> = HashMap::new();
        let mut sources = Vec::with_capacity(pairs.len());
        for (dst, src) in pairs {
            if destinations.contains(src) {
                return Err(FtlError::Overlap { lpn: *src });
            }
            let page = self.tables.page_of(*src as u32);
            sources.push((*dst as u32, page));
            if let Some(page) = page
                && self.tables.page_of(*dst as u32) != Some(page)
            {
                let more = more.entry(page).or_default();
                *more += 1;
                if self.tables.references(page) + *more > self.limits.references as usize {
                    return Err(FtlError::TooManyReferences {
                        lpn: *src,
                        limit: u64::from(self.limits.references),
                    });
                }
            }
        }
        Ok(sources)
    }
}

impl Checked for PageMap {
    fn checks(&mut self) -> Option<&mut Checks> {
        self.nand.has_power().then_some(&mut self.checks)
    }
}

impl Ftl for PageMap {
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
        for lpn in lpn as u32..(lpn + n) as u32 {
            let page = self.place(Stream::Host, ops);
            self.nand.program(page, lpn, NONE, ops);
            self.release(lpn);
            self.tables.bind(lpn, page);
        }
        Checks::after(self, n);
        Ok(())
    }

    fn trim(&mut self, lpn: u64, n: u64, ops: &mut dyn Sink) -> Result<(), FtlError> {
        bounds(lpn, n, self.capacity())?;
        self.nand.counters.host_trims += n;
        if n > 0 {
            (lpn as u32..(lpn + n) as u32).for_each(|lpn| self.release(lpn));
            self.log.trim(lpn as u32, n as u32);
            self.log.flush_if_long(&mut self.nand, &self.tables, ops);
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
        let open = self
            .open
            .map(|frontier| frontier.at.map(|(block, _)| block));
        let view = |block| BlockView {
            role: match self.nand.used(block) {
                0 => Role::Free,
                _ if open.contains(&Some(block)) => Role::Open,
                _ => Role::Data,
            },
            live: self.tables.live(block),
            used: self.nand.used(block),
            erases: self.nand.erases(block),
        };
        (0..self.nand.geometry.blocks).map(view).collect()
    }

    fn references(&self) -> u64 {
        self.tables.shared()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }

    fn restart(&mut self, _: &mut dyn Sink) {
        self.nand.power_on();
        self.log.restart();
        let geometry = self.nand.geometry;
        self.tables = Tables::from_map(geometry, &self.log.map(&self.nand));
        self.victims = Victims::new(geometry.blocks, geometry.block_pages);
        self.free.clear();
        self.open = [Frontier::default(); 2];
        // The open block of moved pages comes first: an interrupted collection may have no other
        // block to move pages into.
        let mut frontiers = self.open.iter_mut().rev();
        for block in 0..geometry.blocks {
            let used = self.nand.used(block);
            if used == 0 {
                self.free.insert((self.nand.erases(block), block));
            } else if used < geometry.block_pages
                && let Some(frontier) = frontiers.next()
            {
                frontier.at = Some((block, used));
            } else {
                self.victims.insert(block, self.tables.live(block));
            }
        }
    }

    fn cut_after(&mut self, steps: u64) {
        self.nand.cut_after(steps);
    }

    fn check(&self) -> Result<(), String> {
        self.tables.check()?;
        let geometry = self.nand.geometry;
        let open = self.open.map(|frontier| frontier.at);
        for block in 0..geometry.blocks {
            let used = self.nand.used(block);
            let free = self.free.contains(&(self.nand.erases(block), block));
            let frontier = open.iter().flatten().find(|(b, _)| *b == block);
            let listed = self.victims.live(block);
            let right = match (free, frontier, listed) {
                (true, None, None) => used == 0,
                (false, Some((_, next)), None) => used == *next,
                (false, None, Some(live)) => {
                    used == geometry.block_pages && live == self.tables.live(block)
                }
                _ => false,
            };
            if !right {
                return Err(format!(
                    "block {block} with {used} pages programmed: free {free}, open {frontier:?}, listed {listed:?}"
                ));
            }
        }
        let dead =
            (0..geometry.pages()).find(|p| self.tables.is_live(*p) && self.nand.is_erased(*p));
        match dead {
            Some(page) => Err(format!("page {page} is mapped and erased")),
            None => Ok(()),
        }
    }
}

impl Sharing for PageMap {
    fn limits(&self) -> ShareLimits {
        self.limits
    }

    fn share(&mut self, pairs: &[(u64, u64)], ops: &mut dyn Sink) -> Result<(), FtlError> {
        let sources = self.sources(pairs)?;
        if sources.is_empty() {
            return Ok(());
        }
        self.nand.counters.host_shares += pairs.len() as u64;
        // Earlier trims must be logged before the shares.
        self.log.flush(&mut self.nand, &self.tables, ops);
        let change = |(lpn, page): &(u32, Option<u32>)| match *page {
            Some(page) => Change::Share { lpn: *lpn, page },
            None => Change::Trim {
                lpn: *lpn,
                pages: 1,
            },
        };
        let changes: Vec<Change> = sources.iter().map(change).collect();
        self.log.append(&changes, &mut self.nand, &self.tables, ops);
        for (lpn, page) in &sources {
            self.release(*lpn);
            if let Some(page) = page {
                self.tables.bind(*lpn, *page);
            }
        }
        Checks::after(self, pairs.len() as u64);
        Ok(())
    }
}
