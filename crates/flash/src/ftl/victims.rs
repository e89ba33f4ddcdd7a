//! The choice of the block that is cheapest to collect.

use super::nand::NONE;

/// Blocks by number of live pages, in lists with constant-time insertion, removal and change.
#[derive(Clone)]
pub(super) struct Victims {
    /// For each number of live pages the first block of the list.
    heads: Vec<u32>,
    /// For each block its successor and its predecessor in the list.
    next: Vec<u32>,
    before: Vec<u32>,
    /// For each block its number of live pages, which selects its list.
    list: Vec<u32>,
    /// All lists before this one are empty.
    least: u32,
}

impl Victims {
    /// No candidates, of `blocks` blocks.
    pub(super) fn new(blocks: u32, block_pages: u32) -> Victims {
        let none = vec![NONE; blocks as usize];
        Victims {
            heads: vec![NONE; block_pages as usize + 1],
            next: none.clone(),
            before: none.clone(),
            list: none,
            least: 0,
        }
    }

    /// Makes a block with this many live pages a candidate.
    pub(super) fn insert(&mut self, block: u32, live: u32) {
        debug_assert_eq!(self.list[block as usize], NONE);
        let head = std::mem::replace(&mut self.heads[live as usize], block);
        self.next[block as usize] = head;
        self.before[block as usize] = NONE;
        if head != NONE {
            self.before[head as usize] = block;
        }
        self.list[block as usize] = live;
        self.least = self.least.min(live);
    }

    /// Removes a block from the candidates.
    pub(super) fn remove(&mut self, block: u32) {
        let live = std::mem::replace(&mut self.list[block as usize], NONE);
        if live == NONE {
            return;
        }
        let (before, next) = (self.before[block as usize], self.next[block as usize]);
        match before {
            NONE => self.heads[live as usize] = next,
            before => self.next[before as usize] = next,
        }
        if next != NONE {
            self.before[next as usize] = before;
        }
    }

    /// Changes a block's number of live pages; does nothing if it is no candidate.
    pub(super) fn change(&mut self, block: u32, live: u32) {
        if self.list[block as usize] != NONE {
            self.remove(block);
            self.insert(block, live);
        }
    }

    /// The block with the fewest live pages.
    pub(super) fn least(&mut self) -> Option<u32> {
        while let Some(head) = self.heads.get(self.least as usize) {
            if *head != NONE {
                return Some(*head);
            }
            self.least += 1;
        }
        self.least = 0;
        None
    }

    /// The number of live pages of a candidate; `None` for other blocks.
    pub(super) fn live(&self, block: u32) -> Option<u32> {
        Some(self.list[block as usize]).filter(|live| *live != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_with_the_fewest_comes_first() {
        let mut victims = Victims::new(8, 4);
        assert_eq!(victims.least(), None);
        for (block, live) in [(3, 4), (1, 2), (6, 2), (2, 3)] {
            victims.insert(block, live);
        }
        victims.change(2, 1);
        // This block is no candidate.
        victims.change(5, 0);
        let mut taken = Vec::new();
        while let Some(block) = victims.least() {
            taken.push((block, victims.live(block)));
            victims.remove(block);
        }
        assert_eq!(
            taken,
            [(2, Some(1)), (6, Some(2)), (1, Some(2)), (3, Some(4))]
        );
    }
}
