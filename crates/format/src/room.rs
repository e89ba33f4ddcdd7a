//! Room for files: blocks that no group's metadata takes, from the start of the volume.

use std::ops::Range;

use crate::error::{Result, size};
use crate::groups::Groups;

/// The free blocks of a new volume. Files take whole clusters.
pub(crate) struct Room<'a> {
    groups: &'a Groups<'a>,
    /// Blocks of a cluster.
    ratio: u64,
    /// The next flex group to look at.
    next: u32,
    /// Free blocks of the flex groups before it, in whole clusters.
    free: Vec<Range<u64>>,
    taken: Vec<Range<u64>>,
}

impl<'a> Room<'a> {
    pub(crate) fn new(groups: &'a Groups<'a>, ratio: u32) -> Room<'a> {
        Room {
            groups,
            ratio: u64::from(ratio),
            next: 0,
            free: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Takes one block, and the rest of its cluster.
    pub(crate) fn one(&mut self) -> Result<u64> {
        let runs = self.take(1)?;
        runs.first().map_or_else(full, |run| Ok(run.start))
    }

    /// Takes `blocks` blocks, in as few runs as is reasonable. The rest of the last cluster is in
    /// no run.
    ///
    /// # Errors
    /// The volume is too small.
    pub(crate) fn take(&mut self, blocks: u64) -> Result<Vec<Range<u64>>> {
        // Small gaps between metadata are left to small files.
        let least = (blocks / 16).max(1).next_multiple_of(self.ratio);
        match self.try_take(blocks, least)? {
            Some(runs) => Ok(runs),
            None => self.try_take(blocks, 1)?.map_or_else(full, Ok),
        }
    }

    /// Takes runs of at least `least` blocks; `None`, and nothing taken, if there are not enough.
    fn try_take(&mut self, blocks: u64, least: u64) -> Result<Option<Vec<Range<u64>>>> {
        let mut missing = blocks;
        let mut runs = Vec::new();
        let mut at = 0;
        while missing > 0 {
            let Some(range) = self.free.get(at) else {
                if !self.look_further()? {
                    return Ok(None);
                }
                continue;
            };
            let len = range.end - range.start;
            if len >= least.min(missing) {
                let end = range.start + len.min(missing);
                runs.push((at, range.start..end));
                missing -= end - range.start;
            }
            at += 1;
        }
        for (at, run) in &runs {
            let whole = run.start..run.end.next_multiple_of(self.ratio);
            if let Some(range) = self.free.get_mut(*at) {
                range.start = whole.end;
            }
            self.taken.push(whole);
        }
        self.free.retain(|range| range.start < range.end);
        Ok(Some(runs.into_iter().map(|(_, run)| run).collect()))
    }

    /// Adds the free blocks of the next flex group; returns whether there is one.
    fn look_further(&mut self) -> Result<bool> {
        if self.next >= self.groups.count() {
            return Ok(false);
        }
        let flex = self.groups.flex(self.next)?;
        self.next += 1;
        for range in flex.free {
            let start = range.start.next_multiple_of(self.ratio);
            let end = range.end - range.end % self.ratio;
            if start < end {
                self.free.push(start..end);
            }
        }
        Ok(true)
    }

    /// All blocks that were taken, in whole clusters, sorted.
    pub(crate) fn into_taken(mut self) -> Vec<Range<u64>> {
        self.taken.sort_by_key(|r| r.start);
        self.taken
    }
}

fn full<T>() -> Result<T> {
    size(
        "the volume is too small for its journal and directories: give it more room, a smaller \
         journal (--journal-size, or -O ^has_journal) or fewer inodes (--inode-ratio)",
    )
}
