//! What the commit of a group takes of the journal and of the volume: known when it is written, for
//! nobody else changes the map of its files meanwhile.

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

use super::super::extents::edit_credits;
use super::super::map::Mapping;

/// Bitmaps that taking blocks of a group changes at most.
const BITMAPS: u64 = 2;
/// Bytes of two entries of an extent tree: of a node that was split as many are free as half of
/// its bytes hold.
const TWO_ENTRIES: u64 = 24;
/// Bytes of an entry of an extent tree.
const EXTENT_ENTRY: u64 = 12;

impl Fs {
    /// Credits of the one handle in which all of it is done.
    pub(super) fn group_credits(&self, cost: Cost) -> Credits {
        // However many allocations there are, they change these.
        let all = self.all_bitmaps();
        let allocated = cost
            .allocations
            .saturating_mul(u64::from(credits::ALLOC_BLOCKS))
            .min(all);
        Credits::try_from(cost.blocks.saturating_add(allocated)).unwrap_or(Credits::MAX)
    }

    /// Blocks that tell what of the volume is in use.
    fn all_bitmaps(&self) -> u64 {
        let each = u64::from(self.vol.geo.block_size) / u64::from(self.vol.geo.desc_size.max(1));
        let groups = u64::from(self.vol.geo.groups);
        BITMAPS * groups + groups.div_ceil(each.max(1))
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
                let found = self.data.map(inode, body, bounded32(at), most)?;
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
        let next = self.data.next_extent(inode, body, at)?;
        Ok(next.map_or(end, |e| u64::from(e.block).clamp(at, end)))
    }

    fn hole_cost(&self, inode: &Inode, body: &InodeBody, hole: Range<u64>) -> Result<Cost> {
        let len = hole.end - hole.start;
        let clusters = self.data.clusters_for(inode, body, hole)?;
        // Each cluster may come to lie somewhere else.
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

    /// To make `len` blocks written that are mapped already.
    fn conversion_cost(&self, body: &InodeBody, len: u64) -> Cost {
        let places = Credits::try_from(len / u64::from(MAX_UNWRITTEN_LEN)).unwrap_or(Credits::MAX);
        let places = places.saturating_add(1);
        Cost {
            blocks: u64::from(self.data.edits(body, places, places.saturating_add(1))),
            nodes: self.data.map_space(body, len),
            ..Cost::default()
        }
    }

    /// What it takes to carry out the changes of one file, with these blocks besides, when it is to
    /// have `size` bytes.
    ///
    /// # Errors
    /// A damaged map.
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

    /// The same when all that is in memory is written early, so that `early` is all there is.
    ///
    /// # Errors
    /// A damaged map.
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

    /// Entries that a node surely takes after it was split.
    fn half_node(&self) -> u64 {
        let half = u64::from(self.vol.geo.block_size) / EXTENT_ENTRY / 2;
        half.saturating_sub(1).max(1)
    }

    /// Blocks that can be given to `files` files with `nodes` nodes, one by one, with so many
    /// credits: what [`early_cost`](Self::early_cost) says, turned round.
    pub(super) fn early_blocks(&self, nodes: u64, files: u64, left: Credits) -> u64 {
        // One block is in memory before it goes.
        let depth = Credits::from(MAX_DEPTH);
        let one = edit_credits(MAX_DEPTH) + depth * (1 + credits::FREE_BLOCKS) + 1;
        let fixed = 3 * nodes + files * (u64::from(MAX_DEPTH) + 2);
        let fixed = fixed + self.all_bitmaps() + u64::from(one);
        let left = u64::from(left).saturating_sub(fixed);
        (left / 2).saturating_sub(1) * self.half_node() / 2
    }

    /// What it takes to give a file the blocks that were written early, after `holes` clusters of
    /// others were mapped.
    ///
    /// A node is split when it is full, and both halves take half of its entries more before one
    /// of them is: so there are at most two splits for each node that is there, and two for each
    /// half of a node that is added.
    ///
    /// # Errors
    /// A damaged map.
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
        // A place cuts what was there in two, and adds itself.
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

    /// What counts of these places.
    ///
    /// # Errors
    /// A damaged map.
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

    /// Blocks that must be holes then: the file itself had content there that was cut off, and the
    /// file is longer again. What lies behind its new end is freed afterwards.
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
