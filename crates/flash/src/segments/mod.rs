//! A log-structured block device: it writes segments in sequence, and cleans them by copies or by
//! SHARE (dissertation, 3.7).
//!
//! * `format`: the on-device format;
//! * `space`: the map, and the live blocks of each segment;
//! * `log`: appending, writing in place, cleaning, checkpoints;
//! * `recover`: making a log, and opening one after a crash.
//!
//! Writes wait in memory for a flush, as in a page cache. A flush of few blocks writes them in
//! place, as F2FS does. A flush of more blocks appends them to the log, with a header block in
//! front.

mod format;
mod log;
mod options;
mod recover;
mod space;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;
use stetfs_block::{
    BlockDevice, BlockError, Counters, Op, Read, ReadList, Result, SECTOR, Stats, Write,
};

use crate::volatile::{Kept, PowerCut};
use format::{BLOCK, LEN};
use log::{Found, Log};
pub use options::{Cleaner, LogError, LogOptions, LogReport, UnknownCleaner};

/// A log-structured device on top of another device.
pub struct LogDevice<D> {
    inner: D,
    log: RwLock<Log>,
    counters: Counters,
}

/// The parts of blocks that `len` bytes at `offset` touch: number of the block, and range in it.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u32, Range<usize>)> {
    let end = offset + len;
    let all = offset / BLOCK..end.div_ceil(BLOCK).max(offset / BLOCK);
    all.filter_map(move |block| {
        let within =
            |at: u64| (at.clamp(block * BLOCK, (block + 1) * BLOCK) - block * BLOCK) as usize;
        let part = within(offset)..within(end);
        (!part.is_empty()).then_some((block as u32, part))
    })
}

impl<D: BlockDevice> LogDevice<D> {
    /// Makes an empty log on `inner`; the device's former content is lost.
    ///
    /// # Errors
    /// The sizes do not fit, or the device fails.
    pub fn format(inner: D, options: LogOptions) -> std::result::Result<LogDevice<D>, LogError> {
        let shape = recover::shape(inner.size(), &options, fastrand::u64(..))?;
        let log = recover::format(&inner, shape, options)?;
        Ok(LogDevice {
            inner,
            log: RwLock::new(log),
            counters: Counters::default(),
        })
    }

    /// Opens the log on `inner`, in its state at the last flush, perhaps with later writes. It
    /// keeps its own sizes, not those of `options`.
    ///
    /// # Errors
    /// There is no log, or the device fails.
    pub fn open(inner: D, options: LogOptions) -> std::result::Result<LogDevice<D>, LogError> {
        let log = recover::open(&inner, &options)?;
        Ok(LogDevice {
            inner,
            log: RwLock::new(log),
            counters: Counters::default(),
        })
    }

    /// A log in the same state, on a present copy of its device. No request may run meanwhile.
    pub fn duplicate_on<C: BlockDevice>(&self, inner: C) -> LogDevice<C> {
        LogDevice {
            inner,
            log: RwLock::new(self.log.read().clone()),
            counters: Counters::default(),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Counts of the log's work.
    pub fn report(&self) -> LogReport {
        self.log.read().report
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(BlockError::OutOfRange {
                op,
                offset,
                len,
                size: self.size(),
            }),
        }
    }

    /// Changes a part of a block in memory.
    fn patch(&self, log: &mut Log, number: u32, part: Range<usize>, bytes: &[u8]) -> Result<()> {
        let mut block = match log.look(number) {
            Found::Waiting(block) => Arc::clone(block),
            Found::At(byte) if part.len() < LEN => {
                let mut block = [0; LEN];
                self.inner.read(byte, &mut block)?;
                Arc::new(block)
            }
            Found::At(_) | Found::Nowhere => Arc::new([0; LEN]),
        };
        log.buffer.remove(&number);
        Arc::make_mut(&mut block)[part].copy_from_slice(bytes);
        log.buffer.insert(number, Some(block));
        Ok(())
    }

    /// Appends the buffer if it fills a segment.
    fn spill(&self, log: &mut Log) -> Result<()> {
        if log.buffer.len() >= log.shape.segment_blocks as usize {
            log.change(|log| log.append_all(&self.inner))?;
        }
        Ok(())
    }

    fn trim(&self, log: &mut Log, blocks: Range<u32>) {
        for number in blocks {
            // A block that is unmapped needs no trim.
            if log.space.position(number).is_some() {
                log.buffer.insert(number, None);
            } else {
                log.buffer.remove(&number);
            }
        }
    }
}

impl<D: BlockDevice> BlockDevice for LogDevice<D> {
    fn size(&self) -> u64 {
        u64::from(self.log.read().shape.logical) * BLOCK
    }

    fn sector_size(&self) -> u32 {
        SECTOR
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            self.check(Op::Read, read.offset, read.len())?;
        }
        let log = self.log.read();
        let mut list = ReadList::new();
        for read in reads {
            self.counters.read(1, read.len());
            let mut at = read.offset;
            for slice in read.data.slices_mut() {
                let len = slice.len() as u64;
                let mut rest = &mut slice[..];
                for (number, part) in parts(at, len) {
                    let (mine, others) = std::mem::take(&mut rest).split_at_mut(part.len());
                    rest = others;
                    match log.look(number) {
                        Found::Waiting(block) => mine.copy_from_slice(&block[part]),
                        Found::At(byte) => list.push(byte + part.start as u64, mine),
                        Found::Nowhere => mine.fill(0),
                    }
                }
                at += len;
            }
        }
        list.submit(&self.inner)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        for write in writes {
            self.check(Op::Write, write.offset, write.len())?;
        }
        let mut log = self.log.write();
        for write in writes {
            self.counters.write(1, write.len());
            let mut at = write.offset;
            for slice in write.data.slices() {
                let mut rest = &slice[..];
                for (number, part) in parts(at, rest.len() as u64) {
                    let (mine, others) = rest.split_at(part.len());
                    self.patch(&mut log, number, part, mine)?;
                    rest = others;
                }
                at += slice.len() as u64;
            }
            self.spill(&mut log)?;
        }
        match writes.iter().any(|w| w.fua) {
            true => log.change(|log| log.flush(&self.inner)),
            false => Ok(()),
        }
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        let mut log = self.log.write();
        log.change(|log| log.flush(&self.inner))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.check(Op::Discard, range.start, len)?;
        self.counters.discard(len);
        let blocks = range.start.div_ceil(BLOCK) as u32..(range.end / BLOCK) as u32;
        let mut log = self.log.write();
        self.trim(&mut log, blocks);
        self.spill(&mut log)
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.check(Op::Write, range.start, len)?;
        let mut log = self.log.write();
        for (number, part) in parts(range.start, len) {
            match part.len() {
                LEN => self.trim(&mut log, number..number + 1),
                n => self.patch(&mut log, number, part, &[0; LEN][..n])?,
            }
        }
        self.spill(&mut log)
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl<D: BlockDevice + PowerCut> PowerCut for LogDevice<D> {
    fn has_cache(&self) -> bool {
        true
    }

    /// Loses some or all of the buffer, cuts the power of the device below, and opens the log
    /// again.
    fn cut_power(&self, kept: Kept) -> Result<()> {
        let mut log = self.log.write();
        let mut is_lost = kept.losses();
        log.buffer.retain(|_, _| !is_lost());
        match kept {
            Kept::All => log.flush(&self.inner)?,
            _ => log.append_all(&self.inner)?,
        }
        self.inner.cut_power(kept)?;
        let (options, report) = (log.options, log.report);
        *log = recover::open(&self.inner, &options).map_err(|e| match e {
            LogError::Device(e) => e,
            e => BlockError::io(Op::Read, 0, 0, std::io::Error::other(e)),
        })?;
        log.report = report;
        Ok(())
    }
}
