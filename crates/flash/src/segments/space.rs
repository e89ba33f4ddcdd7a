//! The map of logical blocks, and the live blocks of each segment.

use std::collections::BTreeSet;

use super::format::{NONE, Shape};

/// The map, the references back, and the segments.
#[derive(Clone)]
pub(super) struct Space {
    segment_blocks: u32,
    forth: Vec<u32>,
    back: Vec<u32>,
    live: Vec<u32>,
    /// Segments that are free.
    pub(super) free: BTreeSet<u32>,
    /// Segments that recovery reads: those written since the checkpoint, and the one after the
    /// last.
    pub(super) chain: BTreeSet<u32>,
}

impl Space {
    /// The space of a log with this map; no segment is in `free` yet.
    pub(super) fn new(shape: &Shape, forth: Vec<u32>) -> Space {
        let blocks = shape.segments as usize * shape.segment_blocks as usize;
        let mut space = Space {
            segment_blocks: shape.segment_blocks,
            back: vec![NONE; blocks],
            live: vec![0; shape.segments as usize],
            forth: vec![NONE; forth.len()],
            free: BTreeSet::new(),
            chain: BTreeSet::new(),
        };
        for (logical, position) in (0..).zip(forth) {
            space.set(logical, position);
        }
        space
    }

    pub(super) fn map(&self) -> &[u32] {
        &self.forth
    }

    /// The position of a logical block.
    pub(super) fn position(&self, logical: u32) -> Option<u32> {
        let position = *self.forth.get(logical as usize)?;
        (position != NONE).then_some(position)
    }

    pub(super) fn segment_of(&self, position: u32) -> u32 {
        position / self.segment_blocks
    }

    /// Maps a logical block to a position; [`NONE`]: unmaps it.
    pub(super) fn set(&mut self, logical: u32, position: u32) {
        let old = std::mem::replace(&mut self.forth[logical as usize], position);
        if old != NONE {
            self.back[old as usize] = NONE;
            self.live[(old / self.segment_blocks) as usize] -= 1;
        }
        if position != NONE {
            self.back[position as usize] = logical;
            self.live[(position / self.segment_blocks) as usize] += 1;
        }
    }

    pub(super) fn live(&self, segment: u32) -> u32 {
        self.live[segment as usize]
    }

    /// The live blocks of a segment: logical block and position of each.
    pub(super) fn living(&self, segment: u32) -> Vec<(u32, u32)> {
        let first = segment * self.segment_blocks;
        let all = first..first + self.segment_blocks;
        let logical = |position: u32| (self.back[position as usize], position);
        all.map(logical)
            .filter(|(logical, _)| *logical != NONE)
            .collect()
    }

    /// The segment with the fewest live blocks, of those that recovery does not read.
    pub(super) fn victim(&self) -> Option<u32> {
        let used = |s: &u32| !self.free.contains(s) && !self.chain.contains(s);
        let all = 0..self.live.len() as u32;
        all.filter(used).min_by_key(|s| self.live(*s))
    }

    /// Checks that the counts agree with the map.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut live = vec![0; self.live.len()];
        for (logical, position) in (0..).zip(&self.forth).filter(|(_, p)| **p != NONE) {
            let logical: u32 = logical;
            assert_eq!(self.back[*position as usize], logical);
            live[(position / self.segment_blocks) as usize] += 1;
        }
        assert_eq!(live, self.live);
        assert!(
            self.free
                .iter()
                .all(|s| self.live(*s) == 0 && !self.chain.contains(s))
        );
    }
}
