//! The codec policy for the StetFS log.

use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_ondisk::num::to_usize;
use stetfs_ondisk::stet::frame::{Counts, Frame};

use super::codec::StetCodec;
use super::compress::Compression;
use super::{read, scan};
use crate::error::Result;
use crate::ids::TxId;
use crate::policy::{Codec, Early, Encoded, ImageRef, LogTail, Medium, Scan};
use crate::tx::Snapshot;

impl Codec for StetCodec {
    fn bound(&self, images: u64, revokes: u64) -> u64 {
        let chunks = to_usize(images).div_ceil(self.per_chunk());
        let head = Counts {
            chunks,
            edges: usize::from(self.lanes),
            images: to_usize(images),
            revokes: to_usize(revokes),
            record: 0,
        }
        .head_blocks(self.size());
        // A raw chunk begins on a block boundary, so a block may stay partly empty before each
        // chunk.
        head as u64 + images + chunks as u64
    }

    fn encode(&self, tx: &Snapshot, early: &mut Early<'_>) -> Result<Encoded> {
        let pages: Vec<PageRef> = tx.images.iter().map(|i| Arc::clone(&i.page)).collect();
        let frame = Frame {
            edges: tx.edges.iter().map(|e| (e.lane.0, e.seq)).collect(),
            images: tx.images.iter().map(|image| image.nr).collect(),
            revokes: tx.revokes.clone(),
            floor: tx.floor,
            ..self.frame(tx.id.lane.0, tx.id.seq, tx.stamp)
        };
        self.lay_out(frame, &pages, early)
    }

    fn note(&self) -> Option<String> {
        (self.compression == Compression::Auto).then(|| self.pace.note())
    }

    fn scan(
        &self,
        log: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan> {
        scan::scan(self, log, tail, progress)
    }

    fn images(&self, log: &dyn Medium, _: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        read::images(self, log, refs)
    }
}
