//! Writing a chunk, segment by segment.

use stetfs_journal::{Credits, Handle};

use super::chunk::Chunk;
use super::segments::{Kind, Mapped, Segment, Segments};
use crate::data::DataStore;
use crate::data::content::pages::{Holds, Pages};
use crate::error::{FsError, Result};
use crate::inode::InodeBody;
use crate::space::{AllocFor, Reservation, credits};
use stetfs_ondisk::num::{bounded32, to_usize};

/// Writes one chunk within a handle.
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a DataStore,
    pub(crate) chunk: &'a Chunk<'a>,
    pub(crate) h: &'a Handle<'a>,
    /// End of the part that is written, bytes.
    pub(crate) end: u64,
    /// Runs that the handle has credits for, in addition to those for the data.
    pub(crate) runs: Credits,
    /// Clusters that may be allocated.
    pub(crate) promised: u64,
    pub(crate) promise: Option<Reservation<'a>>,
    /// The transaction has no room for more.
    pub(crate) is_full: bool,
}

impl Writer<'_> {
    /// Writes the segments in order and returns the bytes written. Stops early, with what was
    /// written, when space or credits run out.
    pub(crate) fn write(
        &mut self,
        pages: &mut Pages<'_>,
        body: &mut InodeBody,
        segments: &Segments,
    ) -> Result<usize> {
        let mut upto = self.chunk.offset;
        for segment in segments {
            let mut rest = *segment;
            while rest.len > 0 {
                let mut part = match self.map_part(body, &rest) {
                    Ok(Some(part)) => part,
                    Ok(None) if upto > self.chunk.offset => {
                        return Ok(to_usize(upto - self.chunk.offset));
                    }
                    Ok(None) => return Err(FsError::Errno(libc::ENOSPC)),
                    // The part written so far counts; the next call finds the same error again.
                    Err(_) if upto > self.chunk.offset => {
                        return Ok(to_usize(upto - self.chunk.offset));
                    }
                    Err(e) => return Err(e),
                };
                part.len = part.len.min(rest.len);
                self.store.put_segment(pages, self.chunk, &part, self.end)?;
                rest.lblk += part.len;
                rest.len -= part.len;
                rest.kind = match rest.kind {
                    Kind::Written(s) => Kind::Written(s + u64::from(part.len)),
                    Kind::Unwritten(s) => Kind::Unwritten(s + u64::from(part.len)),
                    Kind::Hole => Kind::Hole,
                };
                upto = (u64::from(rest.lblk) << self.store.vol.geo.block_bits)
                    .min(self.end)
                    .max(upto);
            }
        }
        Ok(to_usize(upto - self.chunk.offset))
    }

    /// Maps the beginning of a segment so that it can be written. New blocks hold no data yet,
    /// although the map already shows them as written. `None` when the transaction or the promise
    /// of space has no room for more.
    fn map_part(&mut self, body: &mut InodeBody, rest: &Segment) -> Result<Option<Mapped>> {
        let inode = self.chunk.inode;
        match rest.kind {
            Kind::Written(start) => Ok(Some(rest.mapped(start, Holds::Data))),
            Kind::Unwritten(start) => {
                if !self.room_for_edit(body, rest.lblk)? {
                    return Ok(None);
                }
                let range = u64::from(rest.lblk)..u64::from(rest.lblk) + u64::from(rest.len);
                let upto = self
                    .store
                    .edit_map(self.h, inode, body, |map| map.convert_first(&range, false))?;
                Ok(Some(Mapped {
                    len: bounded32(upto - range.start),
                    ..rest.mapped(start, self.prepared())
                }))
            }
            Kind::Hole => {
                let part = (
                    rest.lblk,
                    rest.len.min(self.store.map_room(body, rest.lblk)),
                );
                if !self.room_for_edit(body, rest.lblk)? {
                    return Ok(None);
                }
                let most = self.promised;
                let Some(space) =
                    self.store
                        .alloc_for(self.h, inode, body, part, most, AllocFor::Data)?
                else {
                    return Ok(None);
                };
                self.store
                    .map_new(self.h, inode, body, rest.lblk, &space, false)?;
                let clusters = space.taken().unsigned_abs() / u64::from(self.store.vol.geo.ratio());
                self.promised -= clusters.min(self.promised);
                if let Some(promise) = &mut self.promise {
                    promise.consumed(clusters);
                }
                let run = space.run;
                Ok(Some(Mapped {
                    len: run.len,
                    ..rest.mapped(run.start, Holds::New)
                }))
            }
        }
    }

    /// The content of an unwritten block. A transaction that makes data in it reachable may be the
    /// last valid one, so the block does not count as new.
    fn prepared(&self) -> Holds {
        match self.store.vol.opts.canary.rewrite_home {
            true => Holds::New,
            false => Holds::Nothing,
        }
    }

    /// Whether the handle can take one more change of the map, with an allocation, when the chunk
    /// is written up to `lblk`.
    fn room_for_edit(&mut self, body: &InodeBody, lblk: u32) -> Result<bool> {
        if self.runs > 0 {
            self.runs -= 1;
            return Ok(true);
        }
        let mut need = self.store.map_credits(body) + credits::ALLOC_BLOCKS;
        if self.chunk.journaled {
            // The rest of the data has its credits already, and must keep them.
            let end = self.end.div_ceil(u64::from(self.store.vol.geo.block_size));
            need += bounded32(end.saturating_sub(u64::from(lblk)));
        }
        let left = self.h.credits_left();
        self.is_full = left < need && !self.h.extend(need - left)?;
        Ok(!self.is_full)
    }
}
