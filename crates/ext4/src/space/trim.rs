//! Telling the device what is free (FITRIM).

use std::ops::Range;

use stetfs_ondisk::num::bounded32;

use super::allocator::Allocator;
use super::scan::FreeMap;
use crate::content;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::BlockNr;

/// The block bitmap of a group that was never used is made first.
const CREDITS: u32 = 2;

impl Fs {
    /// Discards the free space among `range`, bytes of the volume, where at least `min` bytes of it
    /// lie together. Answers how many bytes that was.
    ///
    /// Space freed by a transaction that could still be lost is left out.
    ///
    /// # Errors
    /// EINVAL when the range begins behind the volume's end or is shorter than a block, or when no
    /// group has `min` bytes; EROFS, or the device or the journal failed.
    pub fn trim(&self, range: Range<u64>, min: u64) -> Result<u64> {
        let size = u64::from(self.vol.geo.block_size);
        let layout = &self.vol.geo.layout;
        let valid = layout.valid_blocks();
        let start = range.start / size;
        let end = valid.end.min(range.end / size);
        let group_bytes = layout.group_blocks(0);
        let group_bytes = (group_bytes.end - group_bytes.start) * size;
        let length = range.end.saturating_sub(range.start);
        if start >= valid.end || length < size || min > group_bytes {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let cluster = u64::from(self.vol.geo.cluster_size());
        let min = u32::try_from(min.div_ceil(cluster).max(1)).unwrap_or(u32::MAX);
        let mut done = 0;
        for group in 0..self.vol.geo.groups {
            let blocks = layout.group_blocks(group);
            let blocks = blocks.start.max(start)..blocks.end.min(end);
            if !blocks.is_empty() {
                done += self.trim_group(group, &blocks, min)?;
            }
        }
        Ok(done * size)
    }

    /// Discards the free runs of at least `min` clusters among `blocks` of one group.
    fn trim_group(&self, group: u32, blocks: &Range<BlockNr>, min: u32) -> Result<u64> {
        let mut done = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            self.throttle()?;
            let Some(run) = self.space.trim_run(group, at..blocks.end, min)? else {
                break;
            };
            done += run.end - run.start;
            at = run.end;
        }
        Ok(done)
    }
}

impl Allocator {
    /// Discards the first free run of at least `min` clusters among `blocks` of one group.
    fn trim_run(
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
        // Held until the device has done it: nobody can be given the blocks meanwhile.
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
