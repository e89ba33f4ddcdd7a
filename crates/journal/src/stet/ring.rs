//! The medium policy for a lane of the StetFS log, and the header that all lanes share.

use std::sync::Arc;
use std::time::Duration;

use stetfs_block::{BlockDevice, Write, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::stet::header::{COPY_BYTES, LogHeader, copy_at, copy_blocks};
use stetfs_sync::plain::{Instant, Mutex};

use super::pace::Pace;
use super::trim::Trim;
use crate::error::Result;
use crate::ids::{Lane, Stamp};
use crate::jbd2::LogArea;
use crate::policy::{Encoded, LogTail, Medium, Place};

/// The header, in memory and on the device.
pub(super) struct SharedHeader {
    area: LogArea,
    header: Mutex<LogHeader>,
}

impl SharedHeader {
    pub(super) fn new(area: LogArea, header: LogHeader) -> Arc<SharedHeader> {
        Arc::new(SharedHeader {
            area,
            header: Mutex::new(header),
        })
    }

    /// Changes the header and writes it over the older copy, durably with `barrier`.
    pub(super) fn change(&self, barrier: bool, change: impl FnOnce(&mut LogHeader)) -> Result<()> {
        let mut header = self.header.lock();
        let mut next = header.clone();
        next.generation += 1;
        change(&mut next);
        write_copy(&self.area, &next, barrier)?;
        *header = next;
        Ok(())
    }

    fn lane(&self, lane: Lane) -> Option<stetfs_ondisk::stet::header::Lane> {
        self.header.lock().lanes.get(usize::from(lane.0)).copied()
    }
}

/// Writes a header to the copy for its generation, durably with `barrier`.
pub(super) fn write_copy(area: &LogArea, header: &LogHeader, barrier: bool) -> Result<()> {
    let page = Page::padded(COPY_BYTES, &header.encode());
    let size = area.block_size() as usize;
    let first = copy_at(header.generation, area.block_size());
    let mut list = WriteList::new();
    for (i, piece) in (0..copy_blocks(area.block_size())).zip(page.chunks(size.min(COPY_BYTES))) {
        list.push(area.offset(first + i)?, piece);
    }
    if barrier {
        list.submit_flush(&**area.device())?;
    } else {
        list.submit(&**area.device())?;
    }
    Ok(())
}

/// A lane: a ring of log blocks, whose frames prove themselves by checksums.
pub struct StetRing {
    shared: Arc<SharedHeader>,
    lane: Lane,
    first: u64,
    end: u64,
    pace: Arc<Pace>,
    trim: Trim,
    /// The superblocks for block 0; only the first lane has them.
    marks: Option<Marks>,
}

/// The two jbd2 superblocks that block 0 may have.
pub(super) struct Marks {
    /// The superblock after the use of the log: other programs may use the volume.
    pub(super) plain: Page,
    /// The superblock during the use of the log.
    pub(super) in_use: Page,
}

impl StetRing {
    pub(super) fn new(
        shared: &Arc<SharedHeader>,
        lane: Lane,
        pace: &Arc<Pace>,
        trim: Trim,
        marks: Option<Marks>,
    ) -> Option<StetRing> {
        let place = shared.lane(lane)?;
        Some(StetRing {
            shared: Arc::clone(shared),
            lane,
            first: place.first,
            end: place.end,
            pace: Arc::clone(pace),
            trim,
            marks,
        })
    }

    fn put_tail(&self, header: &mut LogHeader, tail: LogTail) {
        if let Some(lane) = header.lanes.get_mut(usize::from(self.lane.0)) {
            lane.tail_at = tail.at.unwrap_or(0);
            lane.tail_seq = tail.seq;
        }
    }

    pub(super) fn area(&self) -> &LogArea {
        &self.shared.area
    }

    /// Writes a superblock to block 0, durably.
    fn mark(&self, page: &Page) -> Result<()> {
        let write = [Write::new(self.area().offset(0)?, page)];
        Ok(self.area().device().write_batch_flush(&write)?)
    }
}

impl Medium for StetRing {
    fn lane(&self) -> Lane {
        self.lane
    }

    fn first(&self) -> u64 {
        self.first
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn blocks<'a>(&self, at: u64, tx: &'a Encoded, _barrier: bool) -> Result<WriteList<'a>> {
        let placed = tx.body().map(|(i, page)| (self.advance(at, i), page));
        self.area().list(placed)
    }

    fn payload<'a>(&self, at: u64, tx: &'a Encoded) -> Result<WriteList<'a>> {
        let placed = tx.payload().map(|(i, page)| (self.advance(at, i), page));
        self.area().list(placed)
    }

    fn sent(&self, bytes: u64, time: Duration) {
        self.pace.wrote(bytes, time);
    }

    fn place(&self, at: u64) -> Result<Place> {
        self.area().place(self.lane, at)
    }

    fn write_early(&self, at: u64, blocks: &[PageRef]) -> Result<()> {
        let started = Instant::now();
        let places = (0..).map(|i| self.advance(at, i));
        self.area().write(places.zip(blocks))?;
        let bytes = blocks.len() as u64 * u64::from(self.area().block_size());
        self.pace.wrote(bytes, started.elapsed());
        Ok(())
    }

    fn flush_seals(&self) -> bool {
        true
    }

    fn set_tail(&self, tail: LogTail, barrier: bool) -> Result<()> {
        self.shared
            .change(barrier, |header| self.put_tail(header, tail))
    }

    fn note_tail(&self, tail: LogTail) {
        self.put_tail(&mut self.shared.header.lock(), tail);
    }

    fn set_horizon(&self, horizon: Stamp) {
        let mut header = self.shared.header.lock();
        header.horizon = header.horizon.max(horizon);
    }

    fn horizon(&self) -> Stamp {
        self.shared.header.lock().horizon
    }

    fn trim(&self, at: u64, count: u64) -> Result<()> {
        let to_end = count.min(self.end - at);
        self.trim.apply(self.area(), at..at + to_end)?;
        self.trim
            .apply(self.area(), self.first..self.first + (count - to_end))
    }

    fn tail(&self) -> LogTail {
        let lane = self.shared.lane(self.lane);
        LogTail {
            seq: lane.map_or(1, |l| l.tail_seq),
            at: lane.map(|l| l.tail_at).filter(|at| *at != 0),
        }
    }

    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>> {
        self.area().read((0..count).map(|i| self.advance(at, i)))
    }

    fn read_bytes(&self, at: u64, count: u64, to: &mut Vec<u8>) -> Result<()> {
        let (mut runs, mut at, mut left) = (Vec::new(), at, count);
        while left > 0 {
            let run = left.min(self.end() - at);
            runs.push(at..at + run);
            (at, left) = (self.advance(at, run), left - run);
        }
        self.area().read_bytes(&runs, to)
    }

    fn retire(&self) -> Result<()> {
        self.marks.as_ref().map_or(Ok(()), |m| self.mark(&m.plain))
    }

    fn resume(&self) -> Result<()> {
        self.marks.as_ref().map_or(Ok(()), |m| self.mark(&m.in_use))
    }
}
