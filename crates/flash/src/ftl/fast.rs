//! FAST: block-level mapping with log blocks for overwrites (Lee et al., ToECS 2007).

use std::collections::{BTreeSet, VecDeque};

use super::blockmap::{BlockMap, RESERVE};
use super::logged::Logged;
use super::nand::NONE;
use super::{Geometry, Role, Sink};

/// Tag of the pages of a random log block. Pages of other blocks have their logical block as the
/// tag.
const RANDOM: u32 = NONE - 1;

/// The log block for sequential writes.
#[derive(Clone, Copy)]
struct Sequential {
    block: u32,
    /// The logical block whose pages it gets, each at its own offset.
    owner: u32,
    /// The next offset.
    next: u32,
}

/// A FAST layer. A logical block has a data block, in which each of its pages has a fixed offset. A
/// write to a used offset goes to a log block: to the sequential one if it begins a logical block
/// or continues the sequence; otherwise to a random one, which takes pages of all logical blocks.
/// When the random log blocks are used up, the oldest is emptied by a full merge of every logical
/// block with a page in it.
///
/// 1. A block is free, a data block, the sequential log block, or in the queue of random log
///    blocks.
/// 2. A live page is at its offset in its data block or in the sequential log block, or it is in a
///    random log block.
/// 3. While a logical block owns the sequential log block, nothing is written to its data block, so
///    that all pages there are older.
/// 4. `RESERVE` blocks are free before a write.
///
/// A write to the owner of the sequential log block that does not continue the sequence ends it, as
/// in the paper's pseudo-code.
#[derive(Clone)]
pub struct Fast {
    map: BlockMap,
    sequential: Option<Sequential>,
    /// Random log blocks, the oldest first. The last one is being filled.
    random: VecDeque<u32>,
    /// Pages used in the last one.
    filled: u32,
    /// Most random log blocks.
    most: usize,
}

impl Fast {
    /// An erased device.
    pub fn new(geometry: Geometry) -> Fast {
        Fast {
            map: BlockMap::new(geometry),
            sequential: None,
            random: VecDeque::new(),
            filled: 0,
            // The spare blocks without the sequential log block and the reserve.
            most: geometry.spare_blocks().saturating_sub(1 + RESERVE).max(1) as usize,
        }
    }

    /// The same layer with at most `blocks` random log blocks; at least one, and at most as many as
    /// the spare blocks allow.
    pub fn with_log(self, blocks: u32) -> Fast {
        let most = (blocks.max(1) as usize).min(self.most);
        Fast { most, ..self }
    }

    /// Begins an empty sequential log block for this logical block.
    fn begin_sequence(&mut self, owner: u32, ops: &mut dyn Sink) {
        self.end_sequence(ops);
        let block = self.map.take_free();
        self.sequential = Some(Sequential {
            block,
            owner,
            next: 0,
        });
    }

    /// Ends the sequence: the log block becomes its owner's data block, at once if it is full
    /// (switch merge), else after the remaining pages are moved into it (partial merge).
    fn end_sequence(&mut self, ops: &mut dyn Sink) {
        let Some(Sequential { block, owner, next }) = self.sequential.take() else {
            return;
        };
        self.map
            .nand
            .counters
            .merges
            .completed(next, &self.map.lpns(owner));
        self.map.gather(owner, next, block, |_| true, ops);
        // The old block has no live pages (3).
        self.map.replace(owner, block, ops);
    }

    /// The next page of the last random log block.
    fn next_random(&mut self, ops: &mut dyn Sink) -> u32 {
        let pages = self.map.nand.geometry.block_pages;
        if self.random.is_empty() || self.filled == pages {
            if self.random.len() >= self.most {
                self.empty_oldest(ops);
            }
            let block = self.map.take_free();
            self.random.push_back(block);
            self.filled = 0;
        }
        let block = self.random.back().copied().unwrap_or_default();
        self.filled += 1;
        self.map.nand.geometry.first_page(block) + self.filled - 1
    }

    /// Empties the oldest random log block by a full merge of each logical block with a page in it.
    fn empty_oldest(&mut self, ops: &mut dyn Sink) {
        let Some(victim) = self.random.pop_front() else {
            return;
        };
        self.map.nand.counters.collections += 1;
        let mut lpns = Vec::new();
        for page in self.map.pages(victim) {
            if self.map.tables.live(victim) == 0 {
                break;
            }
            self.map.tables.referrers(page, &mut lpns);
            if let Some(lpn) = lpns.first() {
                let (owner, _) = self.map.place(*lpn);
                self.put_together(owner, ops);
            }
        }
        self.map.give_back(victim, ops);
    }

    /// A full merge: moves all pages of a logical block into a free block, which becomes its data
    /// block.
    fn put_together(&mut self, owner: u32, ops: &mut dyn Sink) {
        self.map.nand.counters.merges.full += 1;
        let block = self.map.take_free();
        self.map.gather(owner, 0, block, |_| true, ops);
        self.map.replace(owner, block, ops);
        // The new block also has the pages of the sequence.
        if let Some(s) = self.sequential.filter(|s| s.owner == owner) {
            self.sequential = None;
            self.map.give_back(s.block, ops);
        }
    }
}

impl Logged for Fast {
    fn map(&self) -> &BlockMap {
        &self.map
    }

    fn map_mut(&mut self) -> &mut BlockMap {
        &mut self.map
    }

    fn write_page(&mut self, lpn: u32, ops: &mut dyn Sink) {
        let (owner, place) = self.map.place(lpn);
        let owned = self.sequential.filter(|s| s.owner == owner);
        if owned.is_none_or(|s| s.next != place) {
            if owned.is_some() {
                self.end_sequence(ops);
            }
            if let Some(page) = self.map.erased_in_place(owner, place) {
                return self.map.program(lpn, page, owner, ops);
            }
        }
        if place == 0 {
            self.begin_sequence(owner, ops);
        }
        match &mut self.sequential {
            Some(s) if s.owner == owner && s.next == place => {
                s.next += 1;
                let page = self.map.nand.geometry.first_page(s.block) + place;
                self.map.program(lpn, page, owner, ops);
            }
            _ => {
                let page = self.next_random(ops);
                self.map.program(lpn, page, RANDOM, ops);
            }
        }
    }

    fn trimmed(&mut self, owner: u32, ops: &mut dyn Sink) {
        let block = self.map.data[owner as usize];
        let owned = self.sequential.is_some_and(|s| s.owner == owner);
        if block != NONE && !owned && self.map.tables.live(block) == 0 {
            self.map.drop_data(owner, ops);
        }
    }

    fn logs(&self) -> Vec<(u32, Role)> {
        let random = self.random.iter().map(|block| (*block, Role::Log));
        let sequential = self.sequential.map(|s| (s.block, Role::Sequential));
        random.chain(sequential).collect()
    }

    /// Finds the roles of all blocks after a restart, by the tags of their pages.
    fn find_roles(&mut self, ops: &mut dyn Sink) {
        self.sequential = None;
        self.random.clear();
        let mut several = Vec::new();
        for (tag, block) in self.map.restart() {
            if tag == RANDOM {
                self.random.push_back(block);
                self.filled = self.map.nand.used(block);
            } else if self.map.data[tag as usize] == NONE {
                self.map.data[tag as usize] = block;
            } else {
                several.push((tag, block));
            }
        }
        // A power cut interrupted a sequence or a merge, which left two blocks of one logical
        // block; no third block holds its pages in place. The younger one becomes the data block,
        // and gets the live pages of the older one.
        for (owner, block) in several {
            let old = self.map.data[owner as usize];
            self.map.gather(owner, 0, block, |from| from == old, ops);
            self.map.replace(owner, block, ops);
        }
    }

    fn check_logs(&self) -> Result<(), String> {
        let random: BTreeSet<u32> = self.random.iter().copied().collect();
        let sequential = self.sequential.map(|s| s.block);
        let logs = self.random.iter().copied().chain(sequential);
        // (1), (2), (4)
        self.map.check(logs, |lpn, owner, page| {
            let block = self.map.nand.geometry.block_of(page);
            match self.map.nand.tag(block) {
                RANDOM => random.contains(&block),
                tag => {
                    let first = self.map.pages(block).start;
                    let mine = |s: Sequential| s.owner == owner && s.block == block;
                    tag == owner
                        && self.sequential.is_some_and(mine)
                        && page - first == self.map.place(lpn).1
                }
            }
        })
    }
}
