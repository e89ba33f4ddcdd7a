//! BAST: block-level mapping with a log block for each of a few logical blocks (Kim et al., IEEE
//! Trans. Consumer Electronics 2002, the log block scheme; BAST is its name in the paper of FAST).

use super::blockmap::{BlockMap, RESERVE};
use super::logged::Logged;
use super::nand::NONE;
use super::{Geometry, Role, Sink};

/// A log block.
#[derive(Clone, Copy)]
struct LogBlock {
    block: u32,
    /// The only logical block whose pages it gets, in the order of their writes.
    owner: u32,
    /// Pages used.
    used: u32,
    /// Whether each page is at its own offset, so that the log block can become the data block.
    in_place: bool,
}

/// A BAST layer. A logical block has a data block, in which each of its pages has a fixed offset. A
/// write to a used offset goes to the log block of the logical block, which takes pages of no other
/// one. A log block is merged when it is full, or when another logical block needs one and all are
/// in use: then the least recently written one leaves.
///
/// 1. A block is free, a data block, or the log block of one logical block, which has a data block.
/// 2. A live page is at its offset in its data block, or in the log block of its logical block.
/// 3. A page of a log block is younger than the page at its offset in the data block: that one was
///    programmed before the log got any page of this number.
/// 4. `RESERVE` blocks are free before a write.
///
/// A merge is a switch if all pages of the log block are in place, a partial merge if the first
/// ones are and no others are there, else a full merge. A full merge erases the log block before
/// the data block, so that a log block whose pages are not in place never stands without one.
#[derive(Clone)]
pub struct Bast {
    map: BlockMap,
    /// The log blocks, the least recently written first.
    logs: Vec<LogBlock>,
    /// Most log blocks.
    most: usize,
}

impl Bast {
    /// Number of log blocks where none is given.
    pub const LOGS: u32 = 4;

    /// An erased device with at most `logs` log blocks: at least one, and at most as many as the
    /// spare blocks allow.
    pub fn new(geometry: Geometry, logs: u32) -> Bast {
        let spare = geometry.spare_blocks().saturating_sub(RESERVE);
        Bast {
            map: BlockMap::new(geometry),
            logs: Vec::new(),
            most: logs.min(spare).max(1) as usize,
        }
    }

    /// The index of a logical block's log block. Those that were written last come first.
    fn log_of(&self, owner: u32) -> Option<usize> {
        self.logs.iter().rposition(|log| log.owner == owner)
    }

    fn is_full(&self, at: usize) -> bool {
        let pages = self.map.nand.geometry.block_pages;
        self.logs.get(at).is_some_and(|log| log.used == pages)
    }

    /// An empty log block for this logical block, not in the list yet.
    fn begin(&mut self, owner: u32, ops: &mut dyn Sink) -> LogBlock {
        if self.logs.len() >= self.most {
            self.map.nand.counters.collections += 1;
            self.merge(0, ops);
        }
        LogBlock {
            block: self.map.take_free(),
            owner,
            used: 0,
            in_place: true,
        }
    }

    /// Merges a log block with its data block.
    fn merge(&mut self, at: usize, ops: &mut dyn Sink) {
        let log = self.logs.remove(at);
        let owner = log.owner;
        if log.in_place {
            let lpns = self.map.lpns(owner);
            self.map.nand.counters.merges.completed(log.used, &lpns);
            self.map.gather(owner, log.used, log.block, |_| true, ops);
            // The old block has no live pages (3).
            self.map.replace(owner, log.block, ops);
        } else {
            self.map.nand.counters.merges.full += 1;
            let block = self.map.take_free();
            self.map.gather(owner, 0, block, |_| true, ops);
            self.map.give_back(log.block, ops);
            self.map.replace(owner, block, ops);
        }
    }

    /// Whether each programmed page of a block is at its offset.
    fn is_in_place(&self, owner: u32, block: u32) -> bool {
        let lpns = self.map.lpns(owner).start..;
        lpns.zip(self.map.pages(block))
            .all(|(lpn, page)| self.map.nand.lpns(page).all(|is| is == lpn))
    }
}

impl Logged for Bast {
    fn map(&self) -> &BlockMap {
        &self.map
    }

    fn map_mut(&mut self) -> &mut BlockMap {
        &mut self.map
    }

    fn write_page(&mut self, lpn: u32, ops: &mut dyn Sink) {
        let (owner, place) = self.map.place(lpn);
        if let Some(page) = self.map.erased_in_place(owner, place) {
            return self.map.program(lpn, page, owner, ops);
        }
        let mut at = self.log_of(owner);
        if let Some(full) = at.filter(|at| self.is_full(*at)) {
            self.merge(full, ops);
            // The merge moved no page that is trimmed.
            if let Some(page) = self.map.erased_in_place(owner, place) {
                return self.map.program(lpn, page, owner, ops);
            }
            at = None;
        }
        let mut log = match at {
            Some(at) => self.logs.remove(at),
            None => self.begin(owner, ops),
        };
        let page = self.map.nand.geometry.first_page(log.block) + log.used;
        log.in_place &= place == log.used;
        log.used += 1;
        self.logs.push(log);
        self.map.program(lpn, page, owner, ops);
        if log.in_place && log.used as usize == self.map.lpns(owner).len() {
            // A switch merge moves nothing, so it need not wait.
            self.merge(self.logs.len() - 1, ops);
        }
    }

    fn trimmed(&mut self, owner: u32, ops: &mut dyn Sink) {
        let data = self.map.data[owner as usize];
        if data == NONE || self.map.tables.live(data) > 0 {
            return;
        }
        if let Some(at) = self.log_of(owner) {
            if self.map.tables.live(self.logs[at].block) > 0 {
                return;
            }
            let log = self.logs.remove(at);
            self.map.give_back(log.block, ops);
        }
        self.map.drop_data(owner, ops);
    }

    fn logs(&self) -> Vec<(u32, Role)> {
        let logs = self.logs.iter();
        logs.map(|log| (log.block, Role::Log)).collect()
    }

    /// The oldest block of a logical block is its data block. A younger one with pages out of place
    /// is its log block. A younger one with all pages in place is a log block that can become the
    /// data block, or the block of an interrupted merge; either way it becomes the data block, and
    /// gets the live pages of all older ones.
    fn find_roles(&mut self, ops: &mut dyn Sink) {
        self.logs.clear();
        for (owner, block) in self.map.restart() {
            if self.map.data[owner as usize] == NONE {
                self.map.data[owner as usize] = block;
            } else if self.is_in_place(owner, block) {
                self.map.gather(owner, 0, block, |_| true, ops);
                if let Some(at) = self.log_of(owner) {
                    let log = self.logs.remove(at);
                    self.map.give_back(log.block, ops);
                }
                self.map.replace(owner, block, ops);
            } else {
                self.logs.push(LogBlock {
                    block,
                    owner,
                    used: self.map.nand.used(block),
                    in_place: false,
                });
            }
        }
    }

    fn check_logs(&self) -> Result<(), String> {
        if self.logs.len() > self.most {
            return Err(format!("{} log blocks of {}", self.logs.len(), self.most));
        }
        for log in &self.logs {
            let nand = &self.map.nand;
            let right = self.map.data[log.owner as usize] != NONE
                && nand.tag(log.block) == log.owner
                && nand.used(log.block) == log.used
                && self.is_in_place(log.owner, log.block) == log.in_place;
            if !right {
                return Err(format!(
                    "block {} is the log of logical block {}, with {} pages, in place: {}",
                    log.block, log.owner, log.used, log.in_place
                ));
            }
        }
        // (1), (2), (4)
        let logs = self.logs.iter().map(|log| log.block);
        self.map.check(logs, |_, owner, page| {
            let block = self.map.nand.geometry.block_of(page);
            let mut logs = self.logs.iter();
            logs.any(|log| log.owner == owner && log.block == block)
        })
    }
}
