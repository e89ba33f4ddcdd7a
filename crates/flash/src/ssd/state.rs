//! The state of a simulated SSD, under its lock.

use std::ops::Range;
use std::sync::Arc;

use stetfs_block::{BlockError, Read, Result, Write};

use super::content::{Buffer, Content, Mover, Page};
use crate::ftl::{Ftl, FtlError, PAGE, Tally};
use crate::volatile::Kept;

/// Bytes of a page, as a `usize`.
const LEN: usize = PAGE as usize;

/// Pages that a volatile cache holds; when it is full, all are programmed.
const CACHED: usize = (64 << 20) / LEN;

/// A translation layer, the content of its flash, and written pages that are not programmed yet.
pub(super) struct State {
    pub(super) ftl: Box<dyn Ftl>,
    content: Content,
    buffer: Buffer,
    /// Whether the buffer waits for a flush; otherwise it waits only for the end of the request.
    pub(super) volatile: bool,
}

/// The error for a request that the layer refused.
fn refused(e: FtlError) -> BlockError {
    match e {
        FtlError::TooManyPairs { pairs, limit } => BlockError::ShareBatch {
            units: pairs,
            limit,
        },
        FtlError::TooManyReferences { lpn, limit } => BlockError::ShareReferences {
            offset: lpn * PAGE,
            limit,
        },
        FtlError::Overlap { lpn } => BlockError::ShareOverlap { offset: lpn * PAGE },
        FtlError::OutOfRange {
            lpn,
            pages,
            capacity,
        } => BlockError::OutOfRange {
            op: stetfs_block::Op::Write,
            offset: lpn.saturating_mul(PAGE),
            len: pages.saturating_mul(PAGE),
            size: capacity * PAGE,
        },
    }
}

/// The parts of pages that `len` bytes at `offset` touch: number of the page, and range in it.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u32, Range<usize>)> {
    let end = offset + len;
    let first = offset / PAGE;
    (first..end.div_ceil(PAGE).max(first)).filter_map(move |page| {
        let begin = page * PAGE;
        let within = |at: u64| (at.clamp(begin, begin + PAGE) - begin) as usize;
        let part = within(offset)..within(end);
        (!part.is_empty()).then_some((page as u32, part))
    })
}

impl State {
    pub(super) fn new(ftl: Box<dyn Ftl>, volatile: bool) -> State {
        State {
            content: Content::new(ftl.geometry()),
            buffer: Buffer::new(),
            ftl,
            volatile,
        }
    }

    /// A copy in the same state.
    pub(super) fn duplicate(&self) -> State {
        State {
            ftl: self.ftl.duplicate(),
            content: self.content.clone(),
            buffer: self.buffer.clone(),
            volatile: self.volatile,
        }
    }

    /// The current content of a logical page; `None`: zeros.
    fn page(&self, lpn: u32) -> Option<&Arc<Page>> {
        let programmed = || self.content.get(self.ftl.lookup(u64::from(lpn))?);
        self.buffer.get(&lpn).or_else(programmed)
    }

    /// Reads from the device.
    pub(super) fn read(&mut self, read: &mut Read<'_>, tally: &mut Tally) -> Result<()> {
        for (lpn, _) in parts(read.offset, read.len()) {
            if !self.buffer.contains_key(&lpn) {
                self.ftl.read(u64::from(lpn), 1, tally).map_err(refused)?;
            }
        }
        let mut at = read.offset;
        for slice in read.data.slices_mut() {
            let mut rest = &mut slice[..];
            for (lpn, part) in parts(at, rest.len() as u64) {
                let (mine, others) = rest.split_at_mut(part.len());
                match self.page(lpn) {
                    Some(page) => mine.copy_from_slice(&page[part]),
                    None => mine.fill(0),
                }
                rest = others;
            }
            at += slice.len() as u64;
        }
        Ok(())
    }

    /// Writes to the device.
    pub(super) fn write(&mut self, write: &Write<'_>, tally: &mut Tally) -> Result<()> {
        let mut at = write.offset;
        for slice in write.data.slices() {
            let mut rest = &slice[..];
            for (lpn, part) in parts(at, rest.len() as u64) {
                let (mine, others) = rest.split_at(part.len());
                self.patch(lpn, part, mine);
                rest = others;
            }
            at += slice.len() as u64;
        }
        let full = self.buffer.len() > CACHED;
        if !self.volatile || write.fua {
            self.program(write.offset, write.len(), tally)?;
        } else if full {
            self.program_all(tally)?;
        }
        Ok(())
    }

    /// Changes a part of a page in the buffer.
    fn patch(&mut self, lpn: u32, part: Range<usize>, bytes: &[u8]) {
        let mut page = match self.buffer.remove(&lpn) {
            Some(page) => page,
            None if part.len() == LEN => Arc::new([0; LEN]),
            None => self
                .page(lpn)
                .cloned()
                .unwrap_or_else(|| Arc::new([0; LEN])),
        };
        Arc::make_mut(&mut page)[part].copy_from_slice(bytes);
        self.buffer.insert(lpn, page);
    }

    /// Programs the waiting pages of a range, run by run.
    fn program(&mut self, offset: u64, len: u64, tally: &mut Tally) -> Result<()> {
        let pages = (offset / PAGE) as u32..(offset + len).div_ceil(PAGE) as u32;
        if pages.is_empty() {
            return Ok(());
        }
        let waiting: Vec<u32> = self.buffer.range(pages).map(|(lpn, _)| *lpn).collect();
        for run in waiting.chunk_by(|a, b| a + 1 == *b) {
            let (first, n) = (run.first().copied().unwrap_or_default(), run.len() as u64);
            self.step(tally, |ftl, mover| ftl.write(u64::from(first), n, mover))?;
        }
        Ok(())
    }

    /// Programs all waiting pages.
    fn program_all(&mut self, tally: &mut Tally) -> Result<()> {
        self.program(0, self.ftl.capacity() * PAGE, tally)
    }

    /// Runs a step of the layer, and applies it to the content.
    fn step(
        &mut self,
        tally: &mut Tally,
        step: impl FnOnce(&mut dyn Ftl, &mut Mover<'_>) -> std::result::Result<(), FtlError>,
    ) -> Result<()> {
        let mut mover = Mover {
            content: &mut self.content,
            buffer: &mut self.buffer,
            tally,
        };
        step(&mut *self.ftl, &mut mover).map_err(refused)
    }

    /// Makes everything durable.
    pub(super) fn flush(&mut self, tally: &mut Tally) -> Result<()> {
        self.program_all(tally)?;
        self.step(tally, |ftl, mover| {
            ftl.flush(mover);
            Ok(())
        })
    }

    /// Trims the whole pages of a range. Gives the parts of the range beside them.
    pub(super) fn trim(
        &mut self,
        range: &Range<u64>,
        tally: &mut Tally,
    ) -> Result<[Range<u64>; 2]> {
        let (first, end) = (range.start.div_ceil(PAGE), range.end / PAGE);
        if first >= end {
            return Ok([range.clone(), range.end..range.end]);
        }
        let waiting: Vec<u32> = self
            .buffer
            .range(first as u32..end as u32)
            .map(|(lpn, _)| *lpn)
            .collect();
        for lpn in waiting {
            self.buffer.remove(&lpn);
        }
        self.step(tally, |ftl, mover| ftl.trim(first, end - first, mover))?;
        Ok([range.start..first * PAGE, end * PAGE..range.end])
    }

    /// Shares pages. All sources are programmed first, so that the shared content is durable. A
    /// waiting write to a destination is older than the share, and is dropped.
    pub(super) fn share(&mut self, pairs: &[(u64, u64)], tally: &mut Tally) -> Result<()> {
        for (_, src) in pairs {
            self.program(src * PAGE, PAGE, tally)?;
        }
        match self.share_programmed(pairs, tally) {
            // Programming the waiting pages may release references.
            Err(BlockError::ShareReferences { .. }) if !self.buffer.is_empty() => {
                self.program_all(tally)?;
                self.share_programmed(pairs, tally)?;
            }
            done => done?,
        }
        for (dst, _) in pairs {
            self.buffer.remove(&(*dst as u32));
        }
        Ok(())
    }

    fn share_programmed(&mut self, pairs: &[(u64, u64)], tally: &mut Tally) -> Result<()> {
        self.step(tally, |ftl, mover| match ftl.sharing() {
            Some(sharing) => sharing.share(pairs, mover),
            None => Ok(()),
        })
    }

    /// Cuts the power: a part of the waiting pages may still be programmed. Then the layer restarts
    /// from the flash.
    pub(super) fn cut_power(&mut self, kept: Kept, tally: &mut Tally) -> Result<()> {
        let mut is_lost = kept.losses();
        self.buffer.retain(|_, _| !is_lost());
        self.program_all(tally)?;
        if kept == Kept::All {
            self.flush(tally)?;
        }
        self.step(tally, |ftl, mover| {
            ftl.restart(mover);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_pages() {
        let cut = |offset, len| parts(offset, len).collect::<Vec<_>>();
        assert_eq!(cut(0, 4096), [(0, 0..4096)]);
        assert_eq!(cut(4095, 2), [(0, 4095..4096), (1, 0..1)]);
        assert_eq!(cut(5000, 10), [(1, 904..914)]);
        assert_eq!(cut(100, 0), []);
        assert_eq!(cut(4096, 0), []);
    }
}
