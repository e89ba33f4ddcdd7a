//! The codec of the StetFS log: each transaction is one frame.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::num::count32;
use stetfs_ondisk::stet::frame::{self, Counts, Frame, Kind, Stored};

use super::compress::{Compression, Packed};
use super::pace::Pace;
use super::pack::pack;
use super::payload::Payload;
use crate::canary::Canary;
use crate::error::Result;
use crate::ids::Stamp;
use crate::policy::{Early, Encoded, ImageRef, Medium, Packing};
use crate::stats::nanos;

/// The codec of one log.
#[derive(Clone)]
pub struct StetCodec {
    /// The size of a block, in bytes.
    pub block_size: u32,
    /// The log's epoch.
    pub epoch: u64,
    /// The number of lanes of the log: the most edges of a frame.
    pub lanes: u16,
    /// The compression of chunks.
    pub compression: Compression,
    /// The size of a chunk before compression, in bytes.
    pub chunk: u32,
    /// The measured speeds of device and codecs.
    pub pace: Arc<Pace>,
    /// Whether frames are written without barriers.
    pub unordered: bool,
    /// Deliberate faults.
    pub canary: Canary,
}

impl StetCodec {
    /// The number of images of a full chunk.
    pub(super) fn per_chunk(&self) -> usize {
        (self.chunk.min(count32(frame::MAX_CHUNK)) / self.block_size.max(1)).max(1) as usize
    }

    pub(super) fn size(&self) -> usize {
        self.block_size as usize
    }

    /// An empty frame of a transaction, with the present time.
    pub(super) fn frame(&self, lane: u16, seq: u64, stamp: Stamp) -> Frame {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Frame {
            kind: Kind::Transaction,
            epoch: self.epoch,
            seq,
            stamp,
            nanoseconds: nanos(now),
            lane,
            unordered: self.unordered,
            chunks: Vec::new(),
            edges: Vec::new(),
            images: Vec::new(),
            revokes: Vec::new(),
            floor: 0,
            record: Vec::new(),
        }
    }

    /// Packs the images of a frame that has all but its chunks. `early` may write blocks at once.
    ///
    /// # Errors
    /// The errors of `early`.
    pub(super) fn lay_out(
        &self,
        mut frame: Frame,
        pages: &[PageRef],
        early: &mut Early<'_>,
    ) -> Result<Encoded> {
        let groups: Vec<&[PageRef]> = pages.chunks(self.per_chunk()).collect();
        let head_blocks = Counts {
            chunks: groups.len(),
            ..frame.counts()
        }
        .head_blocks(self.size());
        let mut payload = Payload::new(self.size(), head_blocks as u64);
        let mut packing = Packing::default();
        pack(
            self.compression,
            &self.pace,
            &groups,
            &mut |i, packed: Packed| {
                packing.time += packed.time;
                *match packed.chunk.how {
                    Stored::Raw => &mut packing.raw,
                    Stored::Lz4 => &mut packing.lz4,
                    Stored::Zstd => &mut packing.zstd,
                } += 1;
                frame.chunks.push(packed.chunk);
                let group = groups.get(i).copied().unwrap_or_default();
                match &packed.bytes {
                    Some(bytes) => payload.packed(bytes, group.len()),
                    None => payload.verbatim(group),
                }
                payload.send(early)
            },
        )?;
        let mut body: Vec<PageRef> = frame
            .encode(self.size())
            .chunks(self.size())
            .map(|bytes| Arc::new(Page::copy_of(bytes)))
            .collect();
        let (rest, sent, verbatim) = payload.finish();
        body.extend(rest);
        Ok(Encoded {
            body,
            early: (head_blocks, sent),
            seal: None,
            verbatim,
            packing,
            ..Encoded::default()
        })
    }

    /// The references to the images of the frame at log block `at`, in their order.
    ///
    /// # Errors
    /// `Corrupt` if one of them is not in the log.
    pub(super) fn image_refs(
        &self,
        log: &dyn Medium,
        frame: &Frame,
        at: u64,
    ) -> Result<Vec<ImageRef>> {
        let size = self.block_size.max(1);
        let mut refs = Vec::with_capacity(frame.images.len());
        let places = frame.places(self.size());
        for ((index, chunk), start) in (0..).zip(&frame.chunks).zip(places) {
            let is_verbatim = chunk.how == Stored::Raw;
            let first = start / u64::from(size);
            for i in 0..chunk.raw / size {
                let image_at = log.advance(at, first + u64::from(i));
                refs.push(ImageRef {
                    at,
                    flags: index,
                    check: i,
                    place: is_verbatim.then(|| log.place(image_at)).transpose()?,
                });
            }
        }
        Ok(refs)
    }
}
