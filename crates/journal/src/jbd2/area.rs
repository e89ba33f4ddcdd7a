//! The blocks of the journal inode, as one array of log blocks.

use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockDevice, ReadList, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::num::to_usize;

use crate::error::Result;
use crate::ids::{BlockNr, Lane};
use crate::policy::Place;

/// The map from log blocks to device blocks. It is built from the extents of the journal inode, or
/// spans an external journal device.
#[derive(Clone)]
pub struct LogArea {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    /// The first log block and the first device block of each run, in order.
    runs: Vec<(u64, BlockNr)>,
    blocks: u64,
}

impl LogArea {
    /// An area from runs of `(first device block, number of blocks)` in log order. Neighbours are
    /// merged.
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

    /// The number of log blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The size of a log block, in bytes.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The device the log is on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The byte offset of a log block on the device.
    ///
    /// # Errors
    /// `Corrupt` if the area has no such block.
    pub fn offset(&self, log_block: u64) -> Result<u64> {
        let at = self.runs.partition_point(|(log, _)| *log <= log_block);
        let run = at.checked_sub(1).and_then(|i| self.runs.get(i));
        match run {
            Some((log, dev)) if log_block < self.blocks => {
                Ok((dev + (log_block - log)) * u64::from(self.block_size))
            }
            _ => Err(OnDiskError::Corrupt {
                what: "journal",
                detail: format!(
                    "log block {log_block} is outside the log, which has {} blocks",
                    self.blocks
                ),
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

    /// The byte ranges on the device of these log blocks, one for each run.
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

    /// A list of writes to these log blocks.
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

    /// Reads these log blocks in one batch, and appends their bytes to `to`. An error may leave
    /// zeroes there.
    ///
    /// # Errors
    /// The device's.
    pub fn read_bytes(&self, log_blocks: &[Range<u64>], to: &mut Vec<u8>) -> Result<()> {
        let runs = log_blocks.iter().flat_map(|r| self.device_runs(r.clone()));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let before = to.len();
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        to.resize(before + to_usize(bytes), 0);
        let mut rest = to.get_mut(before..).unwrap_or_default();
        let mut list = ReadList::new();
        for run in runs {
            let (now, later) = rest.split_at_mut(to_usize(run.end - run.start));
            list.push(run.start, now);
            rest = later;
        }
        Ok(list.submit(&*self.device)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs_block::MemDevice;

    use super::*;

    /// Blocks behind the log, and blocks of an empty log, are not the log's.
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

    /// Bytes come from the same blocks as pages, over runs and around the end.
    #[test]
    fn bytes_are_those_of_the_pages() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(64 << 10));
        let area = LogArea::new(device, 1024, &[(20, 4), (40, 4), (30, 2)]);
        let page = |n: u8| -> PageRef {
            let mut page = Page::zeroed(1024);
            page.fill(n);
            Arc::new(page)
        };
        let pages: Vec<PageRef> = (0..10).map(page).collect();
        area.write((0..).zip(&pages)).unwrap();
        let mut bytes = b"before".to_vec();
        area.read_bytes(&[2..10, 0..1], &mut bytes).unwrap();
        let expected = pages[2..].iter().chain(&pages[..1]);
        assert_eq!(bytes[..6], *b"before");
        assert_eq!(
            bytes[6..],
            expected.map(|p| &p[..]).collect::<Vec<_>>().concat()
        );
        assert!(area.read_bytes(&[9..11, 0..1], &mut bytes).is_err());
    }
}
