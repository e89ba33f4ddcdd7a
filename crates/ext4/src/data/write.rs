//! Writing files.
//!
//! A call is done in chunks of up to 1 MiB, each within one transaction. A chunk that only
//! overwrites mapped blocks, in the same tick of the clock as the last change, opens none at all.
//!
//! A chunk for which there is no room ends the call, which is short then: room that comes meanwhile
//! is for the next call. So a call of one chunk is whole after a crash, or absent, as far as its
//! size says, unless its map takes more than a transaction holds.

mod chunk;
mod plan;
#[cfg(test)]
mod room_tests;
mod segments;
mod writer;

pub(super) use chunk::{CHUNK, SPARE_RUNS};

use std::ops::Range;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::inode::InodeFlags;

use self::chunk::{Chunk, Written};
use self::segments::{Kind, Mapped, Segments};
use self::writer::Writer;
use super::pages::{DataPath, Pages};
use super::store::DataStore;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, OpenRef};
use crate::types::Ctx;
use stetfs_ondisk::num::{bounded32, to_usize};

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
            if done > 0 {
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
                Ok(Written { bytes, no_room }) => {
                    done += bytes;
                    if no_room && !self.vol.opts.canary.write_on {
                        break;
                    }
                    stetfs_sync::point(self, "write-on");
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
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

    /// File blocks that a range of bytes touches.
    pub(super) fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start >> self.vol.geo.block_bits
            ..bytes.end.div_ceil(u64::from(self.vol.geo.block_size))
    }

    /// Writes whole blocks from file block `lblk` on, through the journal, within a handle that has
    /// the credits for all of it. The space is promised, no data of the file is on its way home,
    /// and the caller writes the inode.
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
            is_full: false,
        };
        let mut pages = Pages::new(self, inode, DataPath::Journal(h));
        let written = writer.write(&mut pages, body, &segments);
        pages.done();
        if written? < bytes.len() {
            return Err(FsError::Errno(libc::ENOSPC));
        }
        let count = bounded32(blocks.end - blocks.start);
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
                .get(to_usize(from - chunk.offset)..to_usize(to.saturating_sub(chunk.offset)));
            let Some(bytes) = bytes else {
                let detail = format!("block {lblk} of the file is none that is written to");
                return self
                    .vol
                    .noted(Err(FsError::corrupt("file map", run.start, detail)));
            };
            pages.put(
                lblk,
                run.start + u64::from(i),
                to_usize(from - base),
                bytes,
                run.holds,
            )?;
        }
        Ok(())
    }
}
