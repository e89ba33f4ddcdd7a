//! The cost of a group's commit, in credits and blocks. It is known at each write, because no other
//! user changes the maps of the files meanwhile.

use std::ops::Range;

use stetfs_journal::Credits;
use stetfs_ondisk::ext4::extent::{MAX_DEPTH, MAX_UNWRITTEN_LEN};

use super::Member;
use super::overlay::{Overlay, Placed};
use super::price::{Cost, EarlySum};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use stetfs_ondisk::num::bounded32;

use crate::data::maps::extents::edit_credits;
use crate::data::maps::map::Mapping;

/// The most bitmaps that allocating blocks of a group changes.
const BITMAPS: u64 = 2;
/// Bytes of two entries of an extent tree. After a split, half of a node is free.
const TWO_ENTRIES: u64 = 24;
/// Bytes of one entry of an extent tree.
const EXTENT_ENTRY: u64 = 12;

impl Fs {
    /// Credits of the one handle of the commit.
    pub(super) fn group_credits(&self, cost: Cost) -> Credits {
        // An upper bound for any number of allocations.
        let all = self.all_bitmaps();
        let allocated = cost
            .allocations
            .saturating_mul(u64::from(credits::ALLOC_BLOCKS))
            .min(all);
        Credits::try_from(cost.blocks.saturating_add(allocated)).unwrap_or(Credits::MAX)
    }

    /// The number of blocks with bitmaps or group descriptors.
    fn all_bitmaps(&self) -> u64 {
        let each = u64::from(self.vol.geo.block_size) / u64::from(self.vol.geo.desc_size.max(1));
        let groups = u64::from(self.vol.geo.groups);
        BITMAPS * groups + groups.div_ceil(each.max(1))
    }

    /// The cost of each file, whatever changes: the inode, its place among the orphans while
    /// cut-off blocks are freed, and the block with its old end.
    pub(super) fn member_cost() -> Cost {
        Cost {
            blocks: u64::from(2 * credits::WRITE_INODE + credits::ORPHAN + 1),
            ..Cost::default()
        }
    }

    /// The cost of writing these file blocks completely.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
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
                let found = self.data.map(inode, body, bounded32(at), most)?;
                let (Mapping::Hole { len } | Mapping::Mapped { len, .. }) = found;
                let end = at + u64::from(len);
                match found {
                    Mapping::Hole { .. } => {
                        // A hole may be reported in several pieces.
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

    /// The end of a hole that extends at least to `at`, and at most to `end`.
    fn hole_end(&self, inode: &Inode, body: &InodeBody, at: u64, end: u64) -> Result<u64> {
        if at >= end {
            return Ok(end);
        }
        let next = self.data.next_extent(inode, body, at)?;
        Ok(next.map_or(end, |e| u64::from(e.block).clamp(at, end)))
    }

    fn hole_cost(&self, inode: &Inode, body: &InodeBody, hole: Range<u64>) -> Result<Cost> {
        let len = hole.end - hole.start;
        let clusters = self.data.clusters_for(inode, body, hole)?;
        // Each cluster may have to be in a run of its own.
        let runs = Credits::try_from(clusters.max(1)).unwrap_or(Credits::MAX);
        let per_node = u64::from(self.vol.geo.block_size) / TWO_ENTRIES;
        Ok(Cost {
            grown: 0,
            blocks: u64::from(self.data.edits(body, runs, runs)),
            allocations: clusters,
            clusters,
            nodes: self.data.map_space(body, len) + u64::from(runs) / per_node.max(1),
        })
    }

    /// The cost of making `len` mapped blocks written.
    fn conversion_cost(&self, body: &InodeBody, len: u64) -> Cost {
        let places = Credits::try_from(len / u64::from(MAX_UNWRITTEN_LEN)).unwrap_or(Credits::MAX);
        let places = places.saturating_add(1);
        Cost {
            blocks: u64::from(self.data.edits(body, places, places.saturating_add(1))),
            nodes: self.data.map_space(body, len),
            ..Cost::default()
        }
    }

    /// The cost of applying the changes of one file, together with the blocks `more`, when it is to
    /// have `size` bytes.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub(super) fn changes_cost(
        &self,
        member: &Member,
        body: &InodeBody,
        more: &[u32],
        size: u64,
    ) -> Result<Cost> {
        let (inode, overlay) = (&member.file.inode, &member.overlay);
        let kept = self.blocks_cost(inode, body, &overlay.kept_runs(more))?;
        let early = self.early_cost(inode, body, &member.early, kept.clusters)?;
        let gaps = self.group_gaps(overlay, &overlay.runs(more), size);
        Ok(Fs::member_cost() + kept + early + self.gaps_cost(inode, body, gaps)?)
    }

    /// [`changes_cost`](Self::changes_cost) when all blocks in memory are written early, so that
    /// `early` covers all changes.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub(super) fn changes_cost_early(
        &self,
        member: &Member,
        body: &InodeBody,
        early: &EarlySum,
    ) -> Result<Cost> {
        let (inode, overlay) = (&member.file.inode, &member.overlay);
        let gaps = self.group_gaps(overlay, &overlay.runs(&[]), overlay.size());
        Ok(Fs::member_cost()
            + self.early_cost(inode, body, early, 0)?
            + self.gaps_cost(inode, body, gaps)?)
    }

    fn gaps_cost(&self, inode: &Inode, body: &InodeBody, gaps: Vec<Range<u64>>) -> Result<Cost> {
        let mut cost = Cost::default();
        for gap in gaps {
            let credits = self.data.punch_credits(inode, body, gap)?;
            cost.blocks = cost.blocks.saturating_add(u64::from(credits));
        }
        Ok(cost)
    }

    /// The least number of entries that a node takes after a split.
    fn half_node(&self) -> u64 {
        let half = u64::from(self.vol.geo.block_size) / EXTENT_ENTRY / 2;
        half.saturating_sub(1).max(1)
    }

    /// Blocks that can be given to `files` files with `nodes` nodes, one by one, with `left`
    /// credits: the inverse of [`early_cost`](Self::early_cost).
    pub(super) fn early_blocks(&self, nodes: u64, files: u64, left: Credits) -> u64 {
        // One block is in memory before it is written early.
        let depth = Credits::from(MAX_DEPTH);
        let one = edit_credits(MAX_DEPTH) + depth * (1 + credits::FREE_BLOCKS) + 1;
        let fixed = 3 * nodes + files * (u64::from(MAX_DEPTH) + 2);
        let fixed = fixed + self.all_bitmaps() + u64::from(one);
        let left = u64::from(left).saturating_sub(fixed);
        (left / 2).saturating_sub(1) * self.half_node() / 2
    }

    /// The cost of giving a file the blocks that were written early, after `holes` other clusters
    /// were mapped.
    ///
    /// A node is split when it is full, and then each half takes half a node of entries before it
    /// is full again. So there are at most two splits for each existing node, and two for each half
    /// node of added entries.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    fn early_cost(
        &self,
        inode: &Inode,
        body: &InodeBody,
        early: &EarlySum,
        holes: u64,
    ) -> Result<Cost> {
        if early.places == 0 {
            return Ok(Cost::default());
        }
        let Some(nodes) = self.data.tree_nodes(inode, body)? else {
            let detail = format!("inode {} has blocks written early", inode.ino);
            return Err(FsError::corrupt("block map", 0, detail));
        };
        // A place splits an existing entry in two, and adds its own.
        let entries = early.places.saturating_add(holes).saturating_mul(2);
        let splits = 2 * nodes + 2 * entries.div_ceil(self.half_node()) + u64::from(MAX_DEPTH);
        Ok(Cost {
            blocks: nodes + splits,
            allocations: early.groups.len() as u64 + nodes + splits,
            nodes: splits,
            grown: early.grown,
            clusters: 0,
        })
    }

    /// The values of these places that the cost depends on.
    ///
    /// # Errors
    /// `Corrupt` when the map is damaged.
    pub(super) fn early_sum(
        &self,
        inode: &Inode,
        body: &InodeBody,
        places: &[Placed],
    ) -> Result<EarlySum> {
        let mut sum = EarlySum::default();
        for (lblk, run) in places {
            let range = u64::from(*lblk)..u64::from(*lblk) + u64::from(run.len);
            let pieces = self.data.pieces(inode, body, range, Credits::MAX)?;
            sum.places += 1;
            sum.grown += u64::from(run.len).saturating_sub(pieces.blocks);
            sum.groups.extend(pieces.groups);
            let place = |nr| self.vol.geo.layout.group_of_block(nr);
            if let (Some(first), Some(last)) = (place(run.start), place(run.end() - 1)) {
                sum.groups.extend(first..=last);
            }
        }
        Ok(sum)
    }

    /// Blocks that the commit must make holes: the file had content there that was cut off, and is
    /// longer again. Blocks behind its new end are freed afterwards.
    pub(super) fn group_gaps(
        &self,
        overlay: &Overlay,
        runs: &[Range<u64>],
        end: u64,
    ) -> Vec<Range<u64>> {
        let size = u64::from(self.vol.geo.block_size);
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
