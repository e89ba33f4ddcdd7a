//! The medium policy for transactions in a region. The start of the log is in the volume's log,
//! which a checkpoint writes; commits do not write there.

use std::sync::Arc;

use stetfs_block::{BlockDevice, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::num::to_usize;

use super::lanes::RegionLanes;
use super::log::{ChangesLog, UNIT};
use crate::error::{JournalError, Result};
use crate::ids::Stamp;
use crate::policy::{Encoded, LogTail, Medium, Place, RecordLog};

/// A lane of transactions in a region.
pub(crate) struct RegionRing {
    /// The log in the region; none if the region is given up.
    log: Option<ChangesLog>,
    /// The first line and the one past the last, by the volume's log.
    ends: (u64, u64),
    device: Arc<dyn BlockDevice>,
    /// The medium in the volume's log that keeps the tail and the horizon.
    tails: Box<dyn Medium>,
    /// The region to mark as empty at the end; none if the log of records does that.
    to_empty: Option<Arc<RegionLanes>>,
}

impl RegionRing {
    /// A ring in a region. `device` is the volume's; `tails` keeps the start of the log. Without a
    /// `log` there is nothing to read. `to_empty` is the region if there is no log of records that
    /// empties it.
    pub(crate) fn new(
        log: Option<ChangesLog>,
        to_empty: Option<Arc<RegionLanes>>,
        device: Arc<dyn BlockDevice>,
        tails: Box<dyn Medium>,
    ) -> RegionRing {
        RegionRing {
            log,
            ends: (tails.first(), tails.end()),
            device,
            tails,
            to_empty,
        }
    }

    fn log(&self) -> Result<&ChangesLog> {
        self.log
            .as_ref()
            .ok_or_else(|| JournalError::Aborted("the log's region was given up".into()))
    }
}

impl Medium for RegionRing {
    fn retire(&self) -> Result<()> {
        if let Some(region) = &self.to_empty {
            region.retire()?;
        }
        self.tails.retire()
    }

    fn resume(&self) -> Result<()> {
        self.tails.resume()?;
        self.to_empty
            .as_ref()
            .map_or(Ok(()), |region| region.begin())
    }

    fn first(&self) -> u64 {
        self.ends.0
    }

    fn end(&self) -> u64 {
        self.ends.1
    }

    fn unit(&self) -> Option<u64> {
        Some(UNIT)
    }

    /// Returns no writes: a transaction is not written to the device.
    fn blocks<'a>(&self, _at: u64, _tx: &'a Encoded, _barrier: bool) -> Result<WriteList<'a>> {
        Ok(WriteList::new())
    }

    /// Flushes the device only if it has writes that are not flushed.
    fn seal(&self, at: u64, tx: &Encoded, barrier: bool) -> Result<()> {
        if barrier && !self.device.is_flushed() {
            self.device.flush()?;
        }
        self.log()?.put(at, &tx.bytes)
    }

    fn write_early(&self, _at: u64, _blocks: &[PageRef]) -> Result<()> {
        Err(JournalError::Aborted(
            "internal error: a log in a region has no blocks".into(),
        ))
    }

    fn place(&self, _at: u64) -> Result<Place> {
        Err(JournalError::Aborted(
            "internal error: a log in a region has no verbatim images".into(),
        ))
    }

    fn flush_seals(&self) -> bool {
        false
    }

    fn set_horizon(&self, horizon: Stamp) {
        self.tails.set_horizon(horizon);
    }

    fn horizon(&self) -> Stamp {
        self.tails.horizon()
    }

    fn set_tail(&self, tail: LogTail, barrier: bool) -> Result<()> {
        self.tails.set_tail(tail, barrier)
    }

    fn note_tail(&self, tail: LogTail) {
        self.tails.note_tail(tail);
    }

    fn tail(&self) -> LogTail {
        self.tails.tail()
    }

    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>> {
        let bytes = self.log()?.read(at, count)?;
        let pages = bytes.chunks(to_usize(UNIT));
        Ok(pages.map(|line| Arc::new(Page::copy_of(line))).collect())
    }

    fn read_bytes(&self, at: u64, count: u64, to: &mut Vec<u8>) -> Result<()> {
        to.extend(self.log()?.read(at, count)?);
        Ok(())
    }
}
