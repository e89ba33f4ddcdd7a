//! Space for file blocks in clusters (`bigalloc`). Without `bigalloc` a cluster is a block.
//!
//! Invariants:
//! * **cluster.C1** A file's blocks keep their positions in clusters: block `l` lies at block `l`
//!   mod the ratio of a cluster, and all mapped blocks of a logical cluster lie in the same cluster
//!   of the volume.
//! * **cluster.C2** A cluster belongs to a file while one of its blocks is mapped: mapping further
//!   ones takes no space, and unmapping the last one frees the cluster.
//! * **cluster.C3** A block of a map, and an attribute block, has a cluster for itself.

use std::ops::Range;

use stetfs_journal::{BlockNr, Handle};
use stetfs_ondisk::ext4::extent::Extent;

use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{AllocFor, BlockRun, Freed};
use stetfs_ondisk::num::bounded32;

/// Space for file blocks that are not mapped yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// The blocks for them.
    pub(crate) run: BlockRun,
    /// The newly allocated clusters; none if the blocks lie in a cluster that the file already has
    /// (cluster.C2).
    pub(crate) new: Option<BlockRun>,
}

impl Space {
    /// Blocks in the newly allocated clusters.
    pub(in crate::data) fn taken(&self) -> i64 {
        self.new.map_or(0, |run| i64::from(run.len))
    }
}

impl DataStore {
    /// The logical cluster of file block `lblk`.
    fn logical_cluster(&self, lblk: u64) -> Range<u64> {
        let ratio = u64::from(self.vol.geo.ratio());
        let start = lblk - lblk % ratio;
        start..start + ratio
    }

    /// The first block of the logical cluster of `lblk` on the volume, if one of its blocks is
    /// mapped (cluster.C1).
    ///
    /// # Errors
    /// EUCLEAN when the place contradicts cluster.C1, or the map is damaged.
    fn place_of_cluster(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u64,
    ) -> Result<Option<BlockNr>> {
        let cluster = self.logical_cluster(lblk);
        let Some(e) = self
            .next_extent(inode, body, cluster.start)
            .inspect_err(|e| self.vol.report(e))?
            .filter(|e| u64::from(e.block) < cluster.end)
        else {
            return Ok(None);
        };
        let at = u64::from(e.block).max(cluster.start);
        let nr = e.start.saturating_add(at - u64::from(e.block));
        let place = self.aligned(inode, at, nr)?;
        self.space
            .check_run(BlockRun {
                start: place,
                len: self.vol.geo.ratio(),
            })
            .inspect_err(|e| self.vol.report(e))?;
        Ok(Some(place))
    }

    /// The first block of the cluster around `nr`, which holds file block `lblk`.
    fn aligned(&self, inode: &Inode, lblk: u64, nr: BlockNr) -> Result<BlockNr> {
        let start = self.vol.geo.cluster_start(nr);
        if nr - start != lblk % u64::from(self.vol.geo.ratio()) {
            let detail = format!(
                "block {lblk} of inode {} is at the wrong position in its cluster",
                inode.ino
            );
            return self.vol.noted(Err(FsError::corrupt("extent", nr, detail)));
        }
        Ok(start)
    }

    /// Clusters that are needed to map all blocks of a hole.
    pub(crate) fn clusters_for(
        &self,
        inode: &Inode,
        body: &InodeBody,
        hole: Range<u64>,
    ) -> Result<u64> {
        let ratio = u64::from(self.vol.geo.ratio());
        if hole.is_empty() || ratio == 1 {
            return Ok(hole.end.saturating_sub(hole.start));
        }
        let (first, last) = (hole.start / ratio, (hole.end - 1) / ratio);
        let mut clusters = last - first + 1;
        if self.place_of_cluster(inode, body, hole.start)?.is_some() {
            clusters -= 1;
        }
        if last > first && self.place_of_cluster(inode, body, hole.end - 1)?.is_some() {
            clusters -= 1;
        }
        Ok(clusters)
    }

    /// Space for up to `want` file blocks from `lblk` on, none of which is mapped: in the cluster
    /// that the file has there, or in up to `limit` new ones; `None` when a new one is needed and
    /// the limit is zero. Credits: `credits::ALLOC_BLOCKS`. The caller has reserved the space.
    ///
    /// # Errors
    /// ENOSPC; EUCLEAN.
    pub(in crate::data) fn alloc_for(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &InodeBody,
        (lblk, want): (u32, u32),
        limit: u64,
        purpose: AllocFor,
    ) -> Result<Option<Space>> {
        let ratio = self.vol.geo.ratio();
        let within = lblk % ratio;
        let mut want = want.max(1);
        if ratio > 1 {
            if let Some(place) = self.place_of_cluster(inode, body, u64::from(lblk))? {
                let run = BlockRun {
                    start: place + u64::from(within),
                    len: want.min(ratio - within),
                };
                return Ok(Some(Space { run, new: None }));
            }
            // The last cluster may also belong to the file already, because of blocks behind the
            // hole.
            let end = u64::from(lblk) + u64::from(want);
            let tail = bounded32(end % u64::from(ratio));
            let several = within + want > ratio;
            if tail > 0 && several && self.place_of_cluster(inode, body, end)?.is_some() {
                want -= tail;
            }
        }
        let clusters = (u64::from(within) + u64::from(want)).div_ceil(u64::from(ratio));
        let clusters = bounded32(clusters.min(limit));
        if clusters == 0 {
            return Ok(None);
        }
        let goal = self.goal_for(inode, body, lblk)?;
        let new = self.space.alloc_blocks(h, inode, goal, clusters, purpose)?;
        let run = BlockRun {
            start: new.start + u64::from(within),
            len: want.min(new.len - within),
        };
        Ok(Some(Space {
            run,
            new: Some(new),
        }))
    }

    /// Takes the beginning of a claimed run, as far as it can be mapped in one piece, for file
    /// blocks from `lblk` on, none of which is mapped.
    ///
    /// # Errors
    /// `Corrupt` when it is not free, or its place contradicts cluster.C1.
    pub(in crate::data) fn take_for(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
        run: BlockRun,
    ) -> Result<Space> {
        let ratio = self.vol.geo.ratio();
        if ratio == 1 {
            self.space.take_claimed(h, inode, run)?;
            return Ok(Space {
                run,
                new: Some(run),
            });
        }
        let run = BlockRun {
            len: run.len.min(ratio - lblk % ratio),
            ..run
        };
        let cluster = BlockRun {
            start: self.aligned(inode, u64::from(lblk), run.start)?,
            len: ratio,
        };
        let new = match self.place_of_cluster(inode, body, u64::from(lblk))? {
            None => {
                self.space.take_claimed(h, inode, cluster)?;
                Some(cluster)
            }
            Some(place) if place == cluster.start => None,
            Some(_) => {
                let detail = format!(
                    "inode {} has mapped this cluster at another place",
                    inode.ino
                );
                return Err(FsError::corrupt("extent", run.start, detail));
            }
        };
        Ok(Space { run, new })
    }

    /// Frees the clusters that belonged only to an extent that was just unmapped (cluster.C2), and
    /// subtracts them from the inode's blocks. Credits: `credits::FREE_BLOCKS` for every group that
    /// it touches.
    ///
    /// # Errors
    /// EUCLEAN, see [`free_blocks`](Self::free_blocks).
    pub(in crate::data) fn free_extent(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        gone: &Extent,
        kind: Freed,
    ) -> Result<()> {
        let ratio = u64::from(self.vol.geo.ratio());
        let (first, end) = (u64::from(gone.block), gone.logical_end());
        let mut place = gone.start;
        let mut clusters = first / ratio..end.div_ceil(ratio);
        if ratio > 1 {
            place = self.aligned(inode, first, gone.start)?;
            let is_mapped = |lblk: u64| {
                Ok::<bool, FsError>(self.place_of_cluster(inode, body, lblk)?.is_some())
            };
            if !end.is_multiple_of(ratio) && is_mapped(end - 1)? {
                clusters.end -= 1;
            }
            if !clusters.is_empty() && !first.is_multiple_of(ratio) && is_mapped(first)? {
                clusters.start += 1;
                place += ratio;
            }
        }
        if clusters.is_empty() {
            return Ok(());
        }
        let len = bounded32((clusters.end - clusters.start) * ratio);
        self.space
            .free_blocks(h, BlockRun { start: place, len }, kind)?;
        body.add_blocks(-i64::from(len))
    }
}
