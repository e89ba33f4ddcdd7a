//! What the commit of a group takes of the journal and of the volume: known when it is written, for
//! nobody else changes the map of its files meanwhile.

use std::ops::{Add, Range};

use stetfs_journal::Credits;
use stetfs_ondisk::ext4::extent::MAX_UNWRITTEN_LEN;

use super::overlay::Overlay;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;

use super::super::map::Mapping;

/// Bitmaps that taking blocks of a group changes at most.
const BITMAPS: u64 = 2;
/// Bytes of two entries of an extent tree: of a node that was split as many are free as half of
/// its bytes hold.
const TWO_ENTRIES: u64 = 24;

/// What changes take, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Blocks that change, but for those that allocations change.
    blocks: u64,
    /// Allocations of data.
    allocations: u64,
    /// Clusters for data.
    pub(super) clusters: u64,
    /// Blocks that maps may take for themselves.
    nodes: u64,
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            blocks: self.blocks.saturating_add(other.blocks),
            allocations: self.allocations.saturating_add(other.allocations),
            clusters: self.clusters.saturating_add(other.clusters),
            nodes: self.nodes.saturating_add(other.nodes),
        }
    }
}

impl Cost {
    /// Clusters of the volume to be promised.
    pub(super) fn space(&self) -> u64 {
        self.clusters.saturating_add(self.nodes)
    }
}

impl Fs {
    /// Credits of the one handle in which all of it is done.
    pub(super) fn group_credits(&self, cost: Cost) -> Credits {
        // However many allocations there are, they change these.
        let each = u64::from(self.geo.block_size) / u64::from(self.geo.desc_size.max(1));
        let groups = u64::from(self.geo.groups);
        let all = BITMAPS * groups + groups.div_ceil(each.max(1));
        let allocated = cost
            .allocations
            .saturating_mul(u64::from(credits::ALLOC_BLOCKS))
            .min(all);
        Credits::try_from(cost.blocks.saturating_add(allocated)).unwrap_or(Credits::MAX)
    }

    /// What each file takes, whatever is changed of it: the inode, its place among the orphans
    /// while what was cut off is freed, the block in which it ended.
    pub(super) fn member_cost() -> Cost {
        Cost {
            blocks: u64::from(2 * credits::WRITE_INODE + credits::ORPHAN + 1),
            ..Cost::default()
        }
    }

    /// What it takes to write these file blocks whole.
    ///
    /// # Errors
    /// A damaged map.
    pub(super) fn blocks_cost(
        &self,
        inode: &Inode,
        body: &InodeBody,
        runs: &[Range<u64>],
    ) -> Result<Cost> {
        let mut cost = Cost::default();
        for run in runs {
            cost.blocks += run.end - run.start;
            let mut at = run.start;
            while at < run.end {
                let most = u32::try_from(run.end - at).unwrap_or(u32::MAX);
                let found = self.map(inode, body, at as u32, most)?;
                let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = found;
                let end = at + u64::from(len);
                match found {
                    Mapping::Hole { .. } => {
                        // Holes are told in pieces.
                        let end = self.hole_end(inode, body, end, run.end)?;
                        cost = cost + self.hole_cost(inode, body, at..end)?;
                        at = end;
                    }
                    Mapping::Mapped { unwritten, .. } => {
                        if unwritten {
                            cost = cost + self.conversion_cost(body, u64::from(len));
                        }
                        at = end;
                    }
                }
            }
        }
        Ok(cost)
    }

    /// Where a hole that reaches to `at` ends, `end` at the latest.
    fn hole_end(&self, inode: &Inode, body: &InodeBody, at: u64, end: u64) -> Result<u64> {
        if at >= end {
            return Ok(end);
        }
        let next = self.next_extent(inode, body, at)?;
        Ok(next.map_or(end, |e| u64::from(e.block).clamp(at, end)))
    }

    fn hole_cost(&self, inode: &Inode, body: &InodeBody, hole: Range<u64>) -> Result<Cost> {
        let len = hole.end - hole.start;
        let clusters = self.clusters_for(inode, body, hole)?;
        // Each cluster may come to lie somewhere else.
        let runs = Credits::try_from(clusters.max(1)).unwrap_or(Credits::MAX);
        let per_node = u64::from(self.geo.block_size) / TWO_ENTRIES;
        Ok(Cost {
            blocks: u64::from(self.edits(body, runs, runs)),
            allocations: clusters,
            clusters,
            nodes: self.map_space(body, len) + u64::from(runs) / per_node.max(1),
        })
    }

    /// To make `len` blocks written that are mapped already.
    fn conversion_cost(&self, body: &InodeBody, len: u64) -> Cost {
        let places = Credits::try_from(len / u64::from(MAX_UNWRITTEN_LEN)).unwrap_or(Credits::MAX);
        let places = places.saturating_add(1);
        Cost {
            blocks: u64::from(self.edits(body, places, places.saturating_add(1))),
            nodes: self.map_space(body, len),
            ..Cost::default()
        }
    }

    /// What it takes to carry out the changes of one file, with these blocks besides, when it is to
    /// have `size` bytes.
    ///
    /// # Errors
    /// A damaged map.
    pub(super) fn overlay_cost(
        &self,
        (inode, body): (&Inode, &InodeBody),
        overlay: &Overlay,
        more: &[u32],
        size: u64,
    ) -> Result<Cost> {
        let runs = overlay.runs(more);
        let mut cost = Fs::member_cost() + self.blocks_cost(inode, body, &runs)?;
        for gap in self.group_gaps(overlay, &runs, size) {
            cost.blocks = cost
                .blocks
                .saturating_add(u64::from(self.punch_credits(inode, body, gap)?));
        }
        Ok(cost)
    }

    /// Blocks that must be holes then: the file itself had content there that was cut off, and the
    /// file is longer again. What lies behind its new end is freed afterwards.
    pub(super) fn group_gaps(
        &self,
        overlay: &Overlay,
        runs: &[Range<u64>],
        end: u64,
    ) -> Vec<Range<u64>> {
        let size = u64::from(self.geo.block_size);
        let cut = overlay.cut();
        let end = cut.end.min(end).div_ceil(size);
        let mut at = cut.start.div_ceil(size);
        let mut gaps = Vec::new();
        for run in runs.iter().take_while(|run| run.start < end) {
            if run.end <= at {
                continue;
            }
            if run.start > at {
                gaps.push(at..run.start);
            }
            at = run.end;
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }
}
