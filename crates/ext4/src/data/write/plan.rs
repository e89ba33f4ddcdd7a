//! Writing one chunk: what it finds and needs, and its transaction.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::time::Timestamp;

use super::chunk::{Chunk, Dropped, SPARE_RUNS, Written};
use super::segments::{Kind, Mapped, Segment, Segments};
use super::writer::Writer;
use crate::data::DataStore;
use crate::data::pages::{DataPath, Pages};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, without_suidgid};
use crate::space::{Reservation, credits};
use stetfs_ondisk::num::{bounded32, count32, to_usize};

/// What writing a chunk comes to.
struct Plan {
    /// Where it ends, bytes: a journaled chunk fits into one transaction.
    end: u64,
    /// File blocks that it touches.
    blocks: Range<u64>,
    /// What lies there.
    segments: Segments,
    /// Clusters that mapping the holes among them takes.
    clusters: u64,
    /// Some of them hold nothing yet.
    fresh: bool,
    /// It begins behind the end of the file, in whose last block something may lie that must not
    /// show.
    gap: bool,
    /// The file is longer after it.
    grows: bool,
    /// What it takes from the inode.
    lost: Option<Dropped>,
    /// Its time.
    now: Timestamp,
    /// That is another one than the last change's.
    stamp: bool,
}

impl Plan {
    /// What the inode says of the data after this transaction needs the data to be there.
    fn order(&self, chunk: &Chunk<'_>) -> bool {
        chunk.journaled || self.fresh || self.gap || self.grows
    }

    /// The runs, if all of them may be written over and nothing else changes.
    fn only_data(&self, chunk: &Chunk<'_>) -> Option<SmallVec<[Mapped; 4]>> {
        if self.order(chunk) || self.stamp || self.lost.is_some() {
            return None;
        }
        self.segments.iter().map(Segment::written).collect()
    }

    /// How many blocks it touches.
    fn block_count(&self) -> u64 {
        self.blocks.end - self.blocks.start
    }
}

impl Fs {
    /// What a write by somebody unprivileged takes from the inode: set-user-id and -group-id, and
    /// `security.capability`.
    pub(super) fn privileges_to_drop(&self, inode: &Inode, body: &InodeBody) -> Result<Dropped> {
        let capability = self.capability_removal(inode, body)?;
        let any = !capability.is_empty()
            || without_suidgid(u32::from(body.mode())) != u32::from(body.mode());
        Ok(Dropped { capability, any })
    }

    /// Writes the chunk, or its beginning: at least one byte. With nothing written nothing changed.
    pub(super) fn write_chunk(&self, chunk: &Chunk<'_>, body: &mut InodeBody) -> Result<Written> {
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
            // What a hole needs in a cluster that the file has, it has; for the map's blocks some
            // are kept.
            0 => (0, None, None),
            clusters => {
                let nodes = self.data.map_space(body, plan.block_count());
                let (n, quota) = self.promise_clusters(chunk.ctx, body, clusters)?;
                let (n, promise) = self.data.reserve_some(n, nodes, chunk.privileged)?;
                (n, Some(promise), Some(quota))
            }
        };
        let (need, runs) = self.chunk_credits(chunk, &plan, body);
        let h = self.vol.journal.begin(need)?;
        let mut writer = Writer {
            store: &self.data,
            chunk,
            h: &h,
            end: plan.end,
            runs,
            promised,
            promise,
            is_full: false,
        };
        let mut pages = Pages::new(&self.data, inode, self.chunk_path(chunk, &plan, body, &h));
        let result = match plan.gap {
            true => self.data.zero_behind(&mut pages, inode, body, body.size()),
            false => Ok(()),
        };
        let result = result.and_then(|()| writer.write(&mut pages, body, &plan.segments));
        pages.done();
        let bytes = match result {
            Ok(n) => n,
            Err(e) => {
                // The tree may have another shape, with the same meaning, and more blocks.
                self.inodes.write_inode_data(&h, inode, body)?;
                self.note_chunk(&h, inode, &plan);
                return Err(e);
            }
        };
        debug_assert!(
            runs == 0 || h.credits_left() > 0,
            "a write took more than was thought"
        );
        self.chunk_written(&h, chunk, &plan, body, bytes)?;
        let is_whole = chunk.offset + bytes as u64 >= plan.end;
        Ok(Written {
            bytes,
            no_room: !is_whole && !writer.is_full,
        })
    }

    /// Looks at what a chunk finds, and reads what it changes in part.
    fn plan_chunk(&self, chunk: &Chunk<'_>, body: &InodeBody) -> Result<Plan> {
        let inode = chunk.inode;
        let bits = self.vol.geo.block_bits;
        let mut end = chunk.end();
        // With what describes it.
        if chunk.journaled {
            let fixed = self.data.runs_credits(body, 1 + SPARE_RUNS) + 2 * credits::WRITE_INODE;
            let most = u64::from(self.vol.journal.max_credits().saturating_sub(fixed).max(1));
            let last = (chunk.offset >> bits).saturating_add(most) << bits;
            end = end.min(last);
        }
        let blocks = self.data.blocks_of(&(chunk.offset..end));
        let segments = self.data.segments(inode, body, &blocks)?;
        let mut clusters = 0;
        for s in segments.iter().filter(|s| s.kind == Kind::Hole) {
            let range = u64::from(s.lblk)..u64::from(s.lblk) + u64::from(s.len);
            clusters += self.data.clusters_for(inode, body, range)?;
        }
        self.data.load_edges(chunk, &segments, end)?;
        let lost = match chunk.kill {
            true => Some(self.privileges_to_drop(inode, body)?).filter(|l| l.any),
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

    /// Writes over blocks that are there, without a transaction.
    fn overwrite(&self, chunk: &Chunk<'_>, runs: &[Mapped], end: u64) -> Result<usize> {
        let mut pages = Pages::new(&self.data, chunk.inode, DataPath::Home(None));
        let put = runs
            .iter()
            .try_for_each(|run| self.data.put_segment(&mut pages, chunk, run, end));
        pages.done();
        put.map(|()| to_usize(end - chunk.offset))
    }

    /// Credits that a chunk begins with, and for how many new runs they are: none if they may not
    /// be enough for all.
    fn chunk_credits(&self, chunk: &Chunk<'_>, plan: &Plan, body: &InodeBody) -> (Credits, u32) {
        let new = plan.segments.iter().filter(|s| s.written().is_none());
        let runs = count32(new.count()).saturating_add(SPARE_RUNS);
        let lost = plan.lost.as_ref().map_or(0, |l| l.capability.credits());
        let mut need = credits::WRITE_INODE + lost;
        if chunk.journaled {
            need += bounded32(plan.block_count()) + 1;
        }
        if plan.fresh {
            need = need.saturating_add(self.data.runs_credits(body, runs));
        }
        let most = self.vol.journal.max_credits();
        if need > most { (most, 0) } else { (need, runs) }
    }

    /// Where a chunk's data goes.
    fn chunk_path<'h>(
        &self,
        chunk: &Chunk<'_>,
        plan: &Plan,
        body: &InodeBody,
        h: &'h Handle<'_>,
    ) -> DataPath<'h> {
        if chunk.journaled {
            return self.data.data_path(h, body);
        }
        let canary = &self.vol.opts.canary;
        let is_prepared = |s: &Segment| matches!(s.kind, Kind::Unwritten(_));
        let skips = (canary.convert_early && plan.segments.iter().any(is_prepared))
            || (canary.size_early && !plan.fresh);
        DataPath::Home((plan.order(chunk) && !skips).then_some(h))
    }

    /// What the inode says after a chunk.
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
            self.drop_privileges(body);
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

    /// What the chunk touches is to be told by a record.
    fn note_chunk(&self, h: &Handle<'_>, inode: &Inode, plan: &Plan) {
        let (first, count) = (bounded32(plan.blocks.start), bounded32(plan.block_count()));
        self.inodes.note_blocks(h, inode, first, count);
    }
}

impl DataStore {
    /// Promises up to `clusters` clusters; fewer if there are no more, but one at least.
    fn reserve_some(
        &self,
        clusters: u64,
        nodes: u64,
        privileged: bool,
    ) -> Result<(u64, Reservation<'_>)> {
        let (mut want, mut too_many) = (clusters, clusters + 1);
        let mut promise = loop {
            match self.space.reserve(want + nodes, privileged) {
                Ok(promise) => break promise,
                Err(FsError::Errno(libc::ENOSPC)) if want > 1 => {
                    (want, too_many) = (want.div_ceil(2), want);
                }
                Err(e) => return Err(e),
            }
        };
        while want + 1 < too_many {
            let more = (too_many - want) / 2;
            match self.space.reserve(more, privileged) {
                Ok(room) => {
                    promise.join(room);
                    want += more;
                }
                Err(FsError::Errno(libc::ENOSPC)) => too_many = want + more,
                Err(e) => return Err(e),
            }
        }
        Ok((want, promise))
    }
}
