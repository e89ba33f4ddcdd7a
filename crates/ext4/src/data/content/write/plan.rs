//! The plan of writing one chunk: its needs, and the content of its transaction.

use std::ops::Range;

use smallvec::SmallVec;
use stetfs_ondisk::ext4::time::Timestamp;

use super::chunk::Chunk;
use super::segments::{Mapped, Segment, Segments};
use crate::data::DataStore;
use crate::error::{FsError, Result};
use crate::space::Reservation;
use crate::xattr::privileges::Dropped;

/// The plan of writing one chunk.
pub(crate) struct Plan {
    /// End of the part that is written, bytes: a journaled chunk must fit into one transaction.
    pub(crate) end: u64,
    /// File blocks that it touches.
    pub(crate) blocks: Range<u64>,
    /// The present mappings of these blocks.
    pub(crate) segments: Segments,
    /// Clusters that are needed to map the holes.
    pub(crate) clusters: u64,
    /// Some of the blocks hold no data yet.
    pub(crate) fresh: bool,
    /// It begins behind the end of the file, whose last block may have bytes behind the end that
    /// must not show.
    pub(crate) gap: bool,
    /// The write makes the file longer.
    pub(crate) grows: bool,
    /// The attributes that the file loses because of the write.
    pub(crate) lost: Option<Dropped>,
    /// The time of the write.
    pub(crate) now: Timestamp,
    /// That time differs from the inode's.
    pub(crate) stamp: bool,
}

impl Plan {
    /// Whether the inode, after this transaction, describes data that must be written before it.
    pub(crate) fn order(&self, chunk: &Chunk<'_>) -> bool {
        chunk.journaled || self.fresh || self.gap || self.grows
    }

    /// The runs, if they can all be overwritten and nothing else changes.
    pub(crate) fn only_data(&self, chunk: &Chunk<'_>) -> Option<SmallVec<[Mapped; 4]>> {
        if self.order(chunk) || self.stamp || self.lost.is_some() {
            return None;
        }
        self.segments.iter().map(Segment::written).collect()
    }

    /// The number of blocks that it touches.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks.end - self.blocks.start
    }
}

impl DataStore {
    /// Promises up to `clusters` clusters; fewer if there are no more, but at least one.
    pub(crate) fn reserve_some(
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
