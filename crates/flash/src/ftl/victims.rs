//! Which block is the cheapest to collect.

use super::nand::NONE;

/// Blocks by live pages: lists that a block enters, leaves and changes in constant time.
#[derive(Clone)]
pub(super) struct Victims {
    /// By live pages: the first block.
    heads: Vec<u32>,
    /// By block.
    next: Vec<u32>,
    before: Vec<u32>,
    /// By block: the list it is in.
    list: Vec<u32>,
    /// No list before this one has a block.
    least: u32,
}

impl Victims {
    /// Of so many blocks none.
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

    /// A block that has so many live pages can be taken from now on.
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

    /// It cannot.
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

    /// It has so many live pages now; nothing if it cannot be taken.
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

    /// The live pages that a block was entered with, if it can be taken.
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
        // Not among them.
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
