//! Discard of free space on request (FITRIM).

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::types::BlockNr;
use std::ops::Range;

impl Fs {
    /// Discards the free space in `range`, bytes of the volume, in runs of at least `min` bytes.
    /// Returns the number of bytes discarded.
    ///
    /// Space freed by a transaction that is not yet valid is left out.
    ///
    /// # Errors
    /// EINVAL when the range begins behind the volume's end or is shorter than a block, or when
    /// `min` is larger than a group; EROFS; errors of the device or the journal.
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
