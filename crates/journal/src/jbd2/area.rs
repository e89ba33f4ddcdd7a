//! The blocks of the journal inode, as one array of log blocks.

use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockDevice, ReadList, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::OnDiskError;

use crate::error::Result;
use crate::ids::{BlockNr, Lane};
use crate::policy::Place;

/// Log block → device block. Built from the extents of the journal inode (or all of an external
/// journal device).
#[derive(Clone)]
pub struct LogArea {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    /// First log block of each run, first device block, in order.
    runs: Vec<(u64, BlockNr)>,
    blocks: u64,
}

impl LogArea {
    /// From runs of `(first device block, number of blocks)` in log order. Neighbours merge.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, runs: &[(BlockNr, u64)]) -> LogArea {
        let mut map: Vec<(u64, BlockNr)> = Vec::new();
        let mut blocks = 0;
        for (start, count) in runs {
            if map
                .last()
                .is_none_or(|(log, dev)| dev + (blocks - log) != *start)
            {
                map.push((blocks, *start));
            }
            blocks += count;
        }
        LogArea {
            device,
            block_size,
            runs: map,
            blocks,
        }
    }

    /// Number of log blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes in a log block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The device the log is on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Byte offset of a log block on the device.
    ///
    /// # Errors
    /// The area has no such block: what lies there is not the log's.
    pub fn offset(&self, log_block: u64) -> Result<u64> {
        let at = self.runs.partition_point(|(log, _)| *log <= log_block);
        let run = at.checked_sub(1).and_then(|i| self.runs.get(i));
        match run {
            Some((log, dev)) if log_block < self.blocks => {
                Ok((dev + (log_block - log)) * u64::from(self.block_size))
            }
            _ => Err(OnDiskError::Corrupt {
                what: "journal",
                detail: format!("log block {log_block} of a log of {} blocks", self.blocks),
            }
            .into()),
        }
    }

    /// The place of a log block, of a lane in this area, that holds an image verbatim.
    ///
    /// # Errors
    /// As [`offset`](Self::offset).
    pub fn place(&self, lane: Lane, log_block: u64) -> Result<Place> {
        Ok(Place::new(lane, self.offset(log_block)?))
    }

    /// The bytes on the device that these log blocks lie in, run by run.
    pub fn device_runs(&self, log_blocks: Range<u64>) -> impl Iterator<Item = Result<Range<u64>>> {
        let mut at = log_blocks.start;
        std::iter::from_fn(move || {
            if at >= log_blocks.end {
                return None;
            }
            let next = self.runs.partition_point(|(log, _)| *log <= at);
            let run_end = self.runs.get(next).map_or(self.blocks, |(log, _)| *log);
            let end = run_end.clamp(at + 1, log_blocks.end);
            let start = self.offset(at);
            let bytes = (end - at) * u64::from(self.block_size);
            at = end;
            Some(start.map(|start| start..start + bytes))
        })
    }

    /// Writes these log blocks in one batch.
    ///
    /// # Errors
    /// The device's.
    pub fn write<'p>(&self, blocks: impl Iterator<Item = (u64, &'p PageRef)>) -> Result<()> {
        Ok(self.list(blocks)?.submit(&*self.device)?)
    }

    /// These log blocks as writes to the device.
    ///
    /// # Errors
    /// As [`offset`](Self::offset).
    pub fn list<'p>(
        &self,
        blocks: impl Iterator<Item = (u64, &'p PageRef)>,
    ) -> Result<WriteList<'p>> {
        let mut list = WriteList::new();
        for (nr, page) in blocks {
            list.push(self.offset(nr)?, page);
        }
        Ok(list)
    }

    /// Reads these log blocks in one batch.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, log_blocks: impl Iterator<Item = u64>) -> Result<Vec<PageRef>> {
        let wanted: Vec<u64> = log_blocks.collect();
        let mut pages: Vec<Page> = wanted
            .iter()
            .map(|_| Page::zeroed(self.block_size as usize))
            .collect();
        let mut list = ReadList::new();
        for (page, nr) in pages.iter_mut().zip(&wanted) {
            list.push(self.offset(*nr)?, page);
        }
        list.submit(&*self.device)?;
        Ok(pages.into_iter().map(Arc::new).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::MemDevice;

    use super::*;

    /// What is behind the log, or of a log without blocks, is somebody else's.
    #[test]
    fn blocks_outside_of_the_log_have_no_place() {
        let device = || -> Arc<dyn BlockDevice> { Arc::new(MemDevice::new(64 << 10)) };
        let area = LogArea::new(device(), 1024, &[(20, 4), (40, 4)]);
        assert_eq!(area.offset(3).unwrap(), 23 << 10);
        assert_eq!(area.offset(7).unwrap(), 43 << 10);
        assert!(area.offset(8).is_err());
        let page: PageRef = Arc::new(Page::zeroed(1024));
        assert!(area.write([(8, &page)].into_iter()).is_err());
        assert!(area.read([8].into_iter()).is_err());
        let empty = LogArea::new(device(), 1024, &[]);
        assert!(empty.offset(0).is_err());
    }
}
