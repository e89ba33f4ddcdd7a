//! Writing files.
//!
//! A call is done in chunks of up to 1 MiB, each within one transaction. A chunk needs no
//! transaction if it only overwrites mapped blocks, in the same clock tick as the last change.
//!
//! A chunk without enough room ends the call as a short write; room that appears meanwhile serves
//! the next call. So after a crash a call of one chunk is complete or absent, as far as the file's
//! size shows, unless its map takes more than a transaction holds.

pub(crate) mod chunk;
mod one_chunk;
pub(crate) mod plan;
#[cfg(test)]
mod room_tests;
pub(crate) mod segments;
pub(crate) mod writer;

pub(crate) use chunk::{CHUNK, SPARE_RUNS};

use std::ops::Range;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::inode::InodeFlags;

use self::chunk::Chunk;
use self::segments::{Kind, Mapped, Segments};
use self::writer::Writer;
use crate::data::content::pages::{DataPath, Pages};
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use stetfs_ondisk::num::{bounded32, to_usize};

impl DataStore {
    /// Refuses to change the content of a file that must not change. `offset`: the start of a
    /// write.
    pub(crate) fn check_changeable(&self, body: &InodeBody, offset: Option<u64>) -> Result<()> {
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
    pub(crate) fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start >> self.vol.geo.block_bits
            ..bytes.end.div_ceil(u64::from(self.vol.geo.block_size))
    }

    /// Writes whole blocks from file block `lblk` on, through the journal, within a handle that has
    /// the credits for all of it. The caller has promised the space, no data of the file is in
    /// write-back, and the caller writes the inode.
    ///
    /// # Errors
    /// ENOSPC, EUCLEAN: the transaction must not commit then.
    pub(crate) fn write_whole(
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

    /// Reads the blocks of which only a part changes, before a handle is open.
    pub(crate) fn load_edges(
        &self,
        chunk: &Chunk<'_>,
        segments: &Segments,
        end: u64,
    ) -> Result<()> {
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
    /// `Corrupt` if the run is not part of the chunk.
    pub(crate) fn put_segment(
        &self,
        pages: &mut Pages<'_>,
        chunk: &Chunk<'_>,
        run: &Mapped,
        end: u64,
    ) -> Result<()> {
        let bits = self.vol.geo.block_bits;
        self.vol.note_io(true, run.start, u64::from(run.len));
        for i in 0..run.len {
            let lblk = run.lblk + i;
            let base = u64::from(lblk) << bits;
            let from = base.max(chunk.offset);
            let to = (base + u64::from(self.vol.geo.block_size)).min(end);
            let bytes = chunk
                .bytes
                .get(to_usize(from - chunk.offset)..to_usize(to.saturating_sub(chunk.offset)));
            let Some(bytes) = bytes else {
                let detail = format!(
                    "internal error: block {lblk} of the file is outside the range written"
                );
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
