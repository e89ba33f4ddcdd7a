//! Writing one chunk: its changes are planned before its transaction begins.

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::num::{bounded32, count32, to_usize};

use super::chunk::{Chunk, SPARE_RUNS, Written};
use super::plan::Plan;
use super::segments::{Kind, Mapped, Segment};
use super::writer::Writer;
use crate::data::DataStore;
use crate::data::content::pages::{DataPath, Pages};
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::xattr::privileges::drop_privileges;

impl DataStore {
    /// Writes the chunk, or its beginning, at least one byte. If it writes nothing, nothing has
    /// changed.
    ///
    /// `promise` promises the owner of the file up to so many clusters, and gives their number;
    /// what it returns beside is held until the chunk is written.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT, EUCLEAN; errors of the journal and the device.
    pub(crate) fn write_chunk<Q>(
        &self,
        chunk: &Chunk<'_>,
        body: &mut InodeBody,
        promise: impl FnOnce(&mut InodeBody, u64) -> Result<(u64, Q)>,
    ) -> Result<Written> {
        let inode = chunk.inode;
        let plan = self.plan_chunk(chunk, body)?;
        if let Some(runs) = plan.only_data(chunk) {
            let bytes = self.overwrite(chunk, &runs, plan.end)?;
            return Ok(Written {
                bytes,
                no_room: false,
            });
        }
        let (promised, promise, _quota) = match plan.clusters {
            // The holes lie in clusters that the file already has. Blocks for the map come from the
            // kept ones.
            0 => (0, None, None),
            clusters => {
                let nodes = self.map_space(body, plan.block_count());
                let (n, quota) = promise(body, clusters)?;
                let (n, promise) = self.reserve_some(n, nodes, chunk.privileged)?;
                (n, Some(promise), Some(quota))
            }
        };
        let (need, runs) = self.chunk_credits(chunk, &plan, body);
        let h = self.vol.begin(inode.ino, need)?;
        let mut writer = Writer {
            store: self,
            chunk,
            h: &h,
            end: plan.end,
            runs,
            promised,
            promise,
            is_full: false,
        };
        let mut pages = Pages::new(self, inode, self.chunk_path(chunk, &plan, body, &h));
        let result = match plan.gap {
            true => self.zero_behind(&mut pages, inode, body, body.size()),
            false => Ok(()),
        };
        let result = result.and_then(|()| writer.write(&mut pages, body, &plan.segments));
        pages.done();
        let bytes = match result {
            Ok(n) => n,
            Err(e) => {
                // The map may have another shape, with the same meaning, and more nodes.
                self.inodes.write_inode_data(&h, inode, body)?;
                self.note_chunk(&h, inode, &plan);
                return Err(e);
            }
        };
        debug_assert!(
            runs == 0 || h.credits_left() > 0,
            "a write took more credits than planned"
        );
        self.chunk_written(&h, chunk, &plan, body, bytes)?;
        let is_whole = chunk.offset + bytes as u64 >= plan.end;
        Ok(Written {
            bytes,
            no_room: !is_whole && !writer.is_full,
        })
    }

    /// Determines the mappings under a chunk, and reads blocks that it changes in part.
    fn plan_chunk(&self, chunk: &Chunk<'_>, body: &InodeBody) -> Result<Plan> {
        let inode = chunk.inode;
        let bits = self.vol.geo.block_bits;
        let mut end = chunk.end();
        // The limit includes the blocks that describe the data.
        if chunk.journaled {
            let fixed = self.runs_credits(body, 1 + SPARE_RUNS) + 2 * credits::WRITE_INODE;
            let most = u64::from(self.vol.journal.max_credits().saturating_sub(fixed).max(1));
            let last = (chunk.offset >> bits).saturating_add(most) << bits;
            end = end.min(last);
        }
        let blocks = self.blocks_of(&(chunk.offset..end));
        let segments = self.segments(inode, body, &blocks)?;
        let mut clusters = 0;
        for s in segments.iter().filter(|s| s.kind == Kind::Hole) {
            let range = u64::from(s.lblk)..u64::from(s.lblk) + u64::from(s.len);
            clusters += self.clusters_for(inode, body, range)?;
        }
        self.load_edges(chunk, &segments, end)?;
        let lost = match chunk.kill {
            true => Some(self.inodes.privileges_to_drop(inode, body)?).filter(|l| l.any),
            false => None,
        };
        let now = self.vol.now();
        let size = body.size();
        let block_size = u64::from(self.vol.geo.block_size);
        Ok(Plan {
            end,
            fresh: segments.iter().any(|s| s.written().is_none()),
            blocks,
            segments,
            clusters,
            gap: chunk.offset > size && !size.is_multiple_of(block_size),
            grows: end > size,
            lost,
            now,
            stamp: body.mtime() != now || body.ctime() != now,
        })
    }

    /// Overwrites existing blocks without a transaction.
    fn overwrite(&self, chunk: &Chunk<'_>, runs: &[Mapped], end: u64) -> Result<usize> {
        let mut pages = Pages::new(self, chunk.inode, DataPath::Home(None));
        let put = runs
            .iter()
            .try_for_each(|run| self.put_segment(&mut pages, chunk, run, end));
        pages.done();
        put.map(|()| to_usize(end - chunk.offset))
    }

    /// Credits that a chunk begins with, and the number of new runs that they cover: 0 if they may
    /// not cover all runs.
    fn chunk_credits(&self, chunk: &Chunk<'_>, plan: &Plan, body: &InodeBody) -> (Credits, u32) {
        let new = plan.segments.iter().filter(|s| s.written().is_none());
        let runs = count32(new.count()).saturating_add(SPARE_RUNS);
        let lost = plan.lost.as_ref().map_or(0, |l| l.capability.credits());
        let mut need = credits::WRITE_INODE + lost;
        if chunk.journaled {
            need += bounded32(plan.block_count()) + 1;
        }
        if plan.fresh {
            need = need.saturating_add(self.runs_credits(body, runs));
        }
        let most = self.vol.journal.max_credits();
        if need > most { (most, 0) } else { (need, runs) }
    }

    /// The data path of a chunk.
    fn chunk_path<'h>(
        &self,
        chunk: &Chunk<'_>,
        plan: &Plan,
        body: &InodeBody,
        h: &'h Handle<'_>,
    ) -> DataPath<'h> {
        if chunk.journaled {
            return self.data_path(h, body);
        }
        let canary = &self.vol.opts.canary;
        let is_prepared = |s: &Segment| matches!(s.kind, Kind::Unwritten(_));
        let skips = (canary.convert_early && plan.segments.iter().any(is_prepared))
            || (canary.size_early && !plan.fresh);
        DataPath::Home((plan.order(chunk) && !skips).then_some(h))
    }

    /// Updates the inode after a chunk.
    fn chunk_written(
        &self,
        h: &Handle<'_>,
        chunk: &Chunk<'_>,
        plan: &Plan,
        body: &mut InodeBody,
        written: usize,
    ) -> Result<()> {
        let inode = chunk.inode;
        if let Some(lost) = &plan.lost {
            self.inodes.xattr_apply(h, inode, body, &lost.capability)?;
            drop_privileges(body);
        }
        body.set_mtime(plan.now);
        body.set_ctime(plan.now);
        let size = body.size().max(chunk.offset + written as u64);
        body.set_size(size);
        if !plan.order(chunk) {
            return self.inodes.write_inode(h, inode, body);
        }
        self.inodes.write_inode_data(h, inode, body)?;
        self.note_chunk(h, inode, plan);
        Ok(())
    }

    /// Notes the chunk's blocks for records.
    fn note_chunk(&self, h: &Handle<'_>, inode: &Inode, plan: &Plan) {
        let (first, count) = (bounded32(plan.blocks.start), bounded32(plan.block_count()));
        self.inodes.note_blocks(h, inode, first, count);
    }
}
