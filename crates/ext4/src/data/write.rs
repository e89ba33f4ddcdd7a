//! Writing files.
//!
//! A call is done in chunks of up to 1 MiB, each within one transaction. A chunk that only
//! overwrites mapped blocks, in the same tick of the clock as the last change, opens none at all.

mod writer;

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::map::Mapping;
use super::pages::{DataPath, Pages};
use super::store::DataStore;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OpenRef, without_suidgid};
use crate::space::{Reservation, credits};
use crate::types::Ctx;
use crate::xattr::Layout;

/// Bytes of one chunk: what one transaction takes whole when data is journaled.
pub(super) const CHUNK: usize = 1 << 20;
/// Runs of new blocks that a handle is asked for at once beside one for each hole, which may have
/// to be filled with several; for more it is extended.
pub(super) const SPARE_RUNS: u32 = 3;

/// A run of file blocks of one kind.
#[derive(Clone, Copy, Debug)]
struct Segment {
    lblk: u32,
    len: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Written(BlockNr),
    Unwritten(BlockNr),
    Hole,
}

type Segments = SmallVec<[Segment; 4]>;

/// A run of file blocks that are mapped.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    lblk: u32,
    len: u32,
    /// Where it lies.
    start: BlockNr,
    /// It holds nothing yet, whatever lies there.
    fresh: bool,
}

impl Segment {
    /// The segment, if it may be written as it is.
    fn written(&self) -> Option<Mapped> {
        match self.kind {
            Kind::Written(start) => Some(self.mapped(start, false)),
            Kind::Unwritten(_) | Kind::Hole => None,
        }
    }

    fn mapped(&self, start: BlockNr, fresh: bool) -> Mapped {
        Mapped {
            lblk: self.lblk,
            len: self.len,
            start,
            fresh,
        }
    }
}

/// One chunk of a write.
struct Chunk<'a> {
    inode: &'a Inode,
    /// First byte in the file.
    offset: u64,
    bytes: &'a [u8],
    /// Who writes.
    ctx: &'a Ctx,
    /// Allowed to use the blocks kept for root.
    privileged: bool,
    /// Clear set-user-id and set-group-id.
    kill: bool,
    journaled: bool,
}

/// What goes with a change by somebody unprivileged.
struct Dropped {
    capability: Layout,
    /// Whether anything goes at all.
    any: bool,
}

impl Chunk<'_> {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Fs {
    /// Writes `data` at `offset`; space is allocated now. Returns the bytes written: fewer when
    /// space ran out or the largest file size was reached on the way. With `kill_suidgid` the
    /// set-user-id and set-group-id bits go.
    ///
    /// # Errors
    /// ENOSPC, EDQUOT, EFBIG; EPERM for immutable files, and append-only ones before their end;
    /// EIO; EROFS.
    pub fn write(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        offset: u64,
        data: &[u8],
        kill_suidgid: bool,
    ) -> Result<usize> {
        let written = self.write_some(ctx, f, offset, data, kill_suidgid)?;
        if f.is_unheld() {
            self.inodes.limit_windows(&f.inode);
        }
        self.settle_data(f).map(|()| written)
    }

    fn write_some(
        &self,
        ctx: &Ctx,
        f: &OpenRef,
        offset: u64,
        data: &[u8],
        kill_suidgid: bool,
    ) -> Result<usize> {
        self.throttle()?;
        let inode = &f.inode;
        let mut guard = inode.body.write();
        let body = &mut *guard;
        self.data.check_changeable(body, Some(offset))?;
        inode.check_alone()?;
        if f.is_unheld() {
            self.space.plan_window(inode, body.size(), data.len());
        }
        let room = self.data.max_size_of(body).saturating_sub(offset);
        if room == 0 && !data.is_empty() {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let data = data
            .get(..usize::try_from(room).unwrap_or(usize::MAX).min(data.len()))
            .unwrap_or_default();
        self.allow_size(offset.saturating_add(data.len() as u64))?;
        if body.is_inline() {
            let stays = data.is_empty()
                || (!(kill_suidgid && self.privileges_to_drop(inode, body)?.any)
                    && self.data.write_inline(inode, body, offset, data)?);
            if stays {
                return Ok(data.len());
            }
            let _quota = self.promise_move_out(ctx, body)?;
            self.data.move_out(inode, body)?;
        }
        let journaled = self.data.journals_data(body);
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|r| !r.is_empty()) {
            if done > 0 && !journaled {
                self.data.throttle_data()?;
            }
            let chunk = Chunk {
                inode,
                offset: offset + done as u64,
                bytes: rest.get(..CHUNK).unwrap_or(rest),
                ctx,
                privileged: self.space.privileged(ctx),
                kill: kill_suidgid && done == 0,
                journaled,
            };
            match self.write_chunk(&chunk, body) {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// What a write by somebody unprivileged takes from the inode: set-user-id and -group-id, and
    /// `security.capability`.
    fn privileges_to_drop(&self, inode: &Inode, body: &InodeBody) -> Result<Dropped> {
        let capability = self.capability_removal(inode, body)?;
        let any = !capability.is_empty()
            || without_suidgid(u32::from(body.mode())) != u32::from(body.mode());
        Ok(Dropped { capability, any })
    }

    /// Writes the chunk, or its beginning: at least one byte. With nothing written nothing changed.
    fn write_chunk(&self, chunk: &Chunk<'_>, body: &mut InodeBody) -> Result<usize> {
        let inode = chunk.inode;
        let bits = self.vol.geo.block_bits;
        let mut end = chunk.end();
        // A journaled chunk must fit into one transaction, with what describes it.
        if chunk.journaled {
            let fixed = self.data.runs_credits(body, 1 + SPARE_RUNS) + 2 * credits::WRITE_INODE;
            let most = u64::from(self.vol.journal.max_credits().saturating_sub(fixed).max(1));
            let last = (chunk.offset >> bits).saturating_add(most) << bits;
            end = end.min(last);
        }
        let blocks = self.data.blocks_of(&(chunk.offset..end));
        let segments = self.data.segments(inode, body, &blocks)?;
        let mut holes = None;
        for s in segments.iter().filter(|s| s.kind == Kind::Hole) {
            let range = u64::from(s.lblk)..u64::from(s.lblk) + u64::from(s.len);
            *holes.get_or_insert(0) += self.data.clusters_for(inode, body, range)?;
        }
        let written: Option<SmallVec<[Mapped; 4]>> =
            segments.iter().map(Segment::written).collect();
        let fresh = written.is_none();
        self.data.load_edges(chunk, &segments, end)?;

        let now = self.vol.now();
        let size = body.size();
        // A block behind whose old end the write begins must not show what lay there.
        let gap = chunk.offset > size && !size.is_multiple_of(u64::from(self.vol.geo.block_size));
        let grows = end > size;
        let lost = if chunk.kill {
            Some(self.privileges_to_drop(inode, body)?).filter(|l| l.any)
        } else {
            None
        };
        let stamp = body.mtime() != now || body.ctime() != now;
        if let Some(written) = written
            && !(chunk.journaled || gap || grows || stamp || lost.is_some())
        {
            let mut pages = Pages::new(&self.data, DataPath::Home(None));
            let put = written
                .iter()
                .try_for_each(|s| self.data.put_segment(&mut pages, chunk, s, end));
            pages.done(inode);
            return put.map(|()| (end - chunk.offset) as usize);
        }

        let nodes = if fresh {
            self.data.map_space(body, blocks.end - blocks.start)
        } else {
            0
        };
        let (promised, promise, _quota) = match holes {
            // What a hole needs in a cluster that the file has, it has; for the map's blocks some
            // are kept.
            None | Some(0) => (0, None, None),
            Some(n) => {
                let (n, quota) = self.promise_clusters(chunk.ctx, body, n)?;
                let (n, promise) = self.data.reserve_some(n, nodes, chunk.privileged)?;
                (n, Some(promise), Some(quota))
            }
        };
        let new = segments.iter().filter(|s| s.written().is_none()).count() as Credits;
        let mut runs = new.saturating_add(SPARE_RUNS);
        let mut need = credits::WRITE_INODE + lost.as_ref().map_or(0, |l| l.capability.credits());
        if chunk.journaled {
            need += (blocks.end - blocks.start) as Credits + 1;
        }
        if fresh {
            need = need.saturating_add(self.data.runs_credits(body, runs));
        }
        if need > self.vol.journal.max_credits() {
            (need, runs) = (self.vol.journal.max_credits(), 0);
        }
        let planned = runs > 0;
        let h = self.vol.journal.begin(need)?;
        let mut writer = Writer {
            store: &self.data,
            chunk,
            h: &h,
            end,
            runs,
            promised,
            promise,
        };
        // What the inode says of the data after this transaction needs the data to be there.
        let order = chunk.journaled || fresh || gap || grows;
        let path = if chunk.journaled {
            DataPath::Journal(&h)
        } else {
            let canary = &self.vol.opts.canary;
            let is_prepared = |s: &Segment| matches!(s.kind, Kind::Unwritten(_));
            let skips = (canary.convert_early && segments.iter().any(is_prepared))
                || (canary.size_early && !fresh);
            DataPath::Home((order && !skips).then_some(&h))
        };
        let mut pages = Pages::new(&self.data, path);
        let result = if gap {
            self.data.zero_behind(&mut pages, inode, body, size)
        } else {
            Ok(())
        }
        .and_then(|()| writer.write(&mut pages, body, &segments));
        pages.done(inode);
        let written = match result {
            Ok(n) => n,
            Err(e) => {
                // The tree may have another shape, with the same meaning.
                self.inodes.write_inode_data(&h, inode, body)?;
                return Err(e);
            }
        };
        if let Some(lost) = lost {
            self.inodes.xattr_apply(&h, inode, body, &lost.capability)?;
            self.drop_privileges(body);
        }
        debug_assert!(
            !planned || h.credits_left() > 0,
            "a write took more than was thought"
        );
        body.set_mtime(now);
        body.set_ctime(now);
        let new_size = size.max(chunk.offset + written as u64);
        body.set_size(new_size);
        if order {
            self.inodes.write_inode_data(&h, inode, body)?;
            let count = (blocks.end - blocks.start) as u32;
            let first = blocks.start as u32;
            self.inodes.note_blocks(&h, inode, first, count);
        } else {
            self.inodes.write_inode(&h, inode, body)?;
        }
        Ok(written)
    }
}

impl DataStore {
    /// Refuses to change the content of what must not change. `offset`: where a write begins.
    pub(super) fn check_changeable(&self, body: &InodeBody, offset: Option<u64>) -> Result<()> {
        if !body.is_regular() {
            return Err(FsError::Errno(if body.is_dir() {
                libc::EISDIR
            } else {
                libc::EINVAL
            }));
        }
        let flags = body.flags();
        let appends = offset.is_some_and(|o| o >= body.size());
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !appends)
        {
            return Err(FsError::Errno(libc::EPERM));
        }
        Ok(())
    }

    /// What lies at a range of file blocks.
    fn segments(&self, inode: &Inode, body: &InodeBody, blocks: &Range<u64>) -> Result<Segments> {
        let mut segments = Segments::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let lblk = u32::try_from(at).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let (len, kind) = match self.map(
                inode,
                body,
                lblk,
                (blocks.end - at).min(u64::from(u32::MAX)) as u32,
            )? {
                Mapping::Hole { len } => (len, Kind::Hole),
                Mapping::Mapped {
                    start,
                    len,
                    unwritten: true,
                } => (len, Kind::Unwritten(start)),
                Mapping::Mapped {
                    start,
                    len,
                    unwritten: false,
                } => (len, Kind::Written(start)),
            };
            match segments.last_mut() {
                // Holes are told in pieces.
                Some(last) if last.kind == Kind::Hole && kind == Kind::Hole => last.len += len,
                _ => segments.push(Segment { lblk, len, kind }),
            }
            at += u64::from(len);
        }
        Ok(segments)
    }

    /// File blocks that a range of bytes touches.
    pub(super) fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start >> self.vol.geo.block_bits
            ..bytes.end.div_ceil(u64::from(self.vol.geo.block_size))
    }

    /// Promises up to `clusters` clusters; fewer if there are no more, but one at least.
    fn reserve_some(
        &self,
        clusters: u64,
        nodes: u64,
        privileged: bool,
    ) -> Result<(u64, Reservation<'_>)> {
        let mut want = clusters;
        loop {
            match self.space.reserve(want + nodes, privileged) {
                Ok(promise) => return Ok((want, promise)),
                Err(FsError::Errno(libc::ENOSPC)) if want > 1 => want = want.div_ceil(2),
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes whole blocks from file block `lblk` on within a handle that has the credits for all
    /// of it. The space is promised, and the caller writes the inode.
    ///
    /// # Errors
    /// ENOSPC, EUCLEAN: the transaction must not commit then.
    pub(super) fn write_whole(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
        bytes: &[u8],
    ) -> Result<()> {
        let chunk = Chunk {
            inode,
            offset: u64::from(lblk) << self.vol.geo.block_bits,
            bytes,
            ctx: &Ctx::default(),
            privileged: true,
            kill: false,
            journaled: true,
        };
        let blocks = self.blocks_of(&(chunk.offset..chunk.end()));
        let segments = self.segments(inode, body, &blocks)?;
        let mut writer = Writer {
            store: self,
            chunk: &chunk,
            h,
            end: chunk.end(),
            runs: Credits::MAX,
            promised: u64::MAX,
            promise: None,
        };
        let mut pages = Pages::new(self, DataPath::Journal(h));
        let written = writer.write(&mut pages, body, &segments);
        pages.done(inode);
        if written? < bytes.len() {
            return Err(FsError::Errno(libc::ENOSPC));
        }
        let count = (blocks.end - blocks.start) as u32;
        self.inodes.note_blocks(h, inode, lblk, count);
        Ok(())
    }

    /// Reads the blocks that are changed in part, before a handle is open.
    fn load_edges(&self, chunk: &Chunk<'_>, segments: &Segments, end: u64) -> Result<()> {
        let size = u64::from(self.vol.geo.block_size);
        for (segment, at) in segments
            .first()
            .map(|s| (s, chunk.offset))
            .into_iter()
            .chain(segments.last().map(|s| (s, end)))
        {
            if let Kind::Written(start) = segment.kind
                && !at.is_multiple_of(size)
            {
                self.vol
                    .cache
                    .read(start + ((at / size) - u64::from(segment.lblk)))?;
            }
        }
        Ok(())
    }

    /// Puts the chunk's bytes into the blocks of a run.
    ///
    /// # Errors
    /// `Corrupt` if the run is not of the chunk.
    fn put_segment(
        &self,
        pages: &mut Pages<'_>,
        chunk: &Chunk<'_>,
        run: &Mapped,
        end: u64,
    ) -> Result<()> {
        let bits = self.vol.geo.block_bits;
        self.vol.note_asked(true, run.start, u64::from(run.len));
        for i in 0..run.len {
            let lblk = run.lblk + i;
            let base = u64::from(lblk) << bits;
            let from = base.max(chunk.offset);
            let to = (base + u64::from(self.vol.geo.block_size)).min(end);
            let bytes = chunk
                .bytes
                .get((from - chunk.offset) as usize..(to.saturating_sub(chunk.offset)) as usize);
            let Some(bytes) = bytes else {
                let detail = format!("block {lblk} of the file is none that is written to");
                return self
                    .vol
                    .noted(Err(FsError::corrupt("file map", run.start, detail)));
            };
            pages.put(
                lblk,
                run.start + u64::from(i),
                (from - base) as usize,
                bytes,
                run.fresh,
            )?;
        }
        Ok(())
    }
}

/// Writes one chunk within a handle.
struct Writer<'a> {
    store: &'a DataStore,
    chunk: &'a Chunk<'a>,
    h: &'a Handle<'a>,
    /// Where the chunk ends, bytes.
    end: u64,
    /// Runs that the handle has the credits for, beside those for the data.
    runs: Credits,
    /// Clusters that may be allocated.
    promised: u64,
    promise: Option<Reservation<'a>>,
}
