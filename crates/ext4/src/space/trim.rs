//! Discard of free space on request (FITRIM).

use std::ops::Range;

use stetfs_ondisk::num::bounded32;

use super::allocator::Allocator;
use super::scan::FreeMap;
use crate::content;
use crate::error::Result;
use crate::types::BlockNr;

/// Credits for the block bitmap of a group that was never used: it is made first.
const CREDITS: u32 = 2;

impl Allocator {
    /// Discards the first free run of at least `min` clusters among `blocks` of one group.
    pub(crate) fn trim_run(
        &self,
        group: u32,
        blocks: Range<BlockNr>,
        min: u32,
    ) -> Result<Option<Range<BlockNr>>> {
        let ratio = u64::from(self.vol.geo.ratio());
        let first = self.vol.geo.layout.group_first_block(group);
        let from = bounded32(blocks.start.saturating_sub(first).div_ceil(ratio));
        let to = bounded32(blocks.end.saturating_sub(first) / ratio);
        let h = self.vol.journal.begin(CREDITS)?;
        // The group stays locked until the discard is done, so that no file gets the blocks
        // meanwhile.
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let block = self.block_bitmap(&h, group, st)?.block;
        let map = content::page(&block)?;
        let free = FreeMap::new(
            &map,
            st.pending.as_deref(),
            self.vol.geo.layout.group_clusters(group),
        );
        let mut at = from;
        while let Some(start) = free.next_free(at, to) {
            at = free.run_end(start, to);
            if at - start >= min {
                let run = first + u64::from(start) * ratio..first + u64::from(at) * ratio;
                let size = u64::from(self.vol.geo.block_size);
                let device = self.vol.cache.device();
                device.discard(run.start * size..run.end * size)?;
                return Ok(Some(run));
            }
        }
        Ok(None)
    }
}
