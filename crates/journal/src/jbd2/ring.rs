//! The medium policy for jbd2: the ring on the block device, its superblock and its barriers.

use std::sync::Arc;

use stetfs_block::{BlockDevice, Write, WriteList};
use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::jbd2::JournalSuperblock;
use stetfs_ondisk::num::low32;
use stetfs_sync::plain::Mutex;
use zerocopy::IntoBytes;

use super::area::LogArea;
use crate::canary::Canary;
use crate::error::Result;
use crate::policy::{Encoded, LogTail, Medium, Place};

/// The ring between `s_first` and the fast-commit area.
pub struct Jbd2Ring {
    area: LogArea,
    first: u64,
    end: u64,
    /// Whether the commit block is written with the rest, under one flush (`async_commit`).
    async_commit: bool,
    canary: Canary,
    state: Mutex<State>,
}

struct State {
    sb: JournalSuperblock,
    tail: LogTail,
}

impl Jbd2Ring {
    pub(super) fn new(
        area: LogArea,
        sb: JournalSuperblock,
        async_commit: bool,
        canary: Canary,
    ) -> Jbd2Ring {
        let start = u64::from(sb.s_start.get());
        let tail = LogTail {
            seq: u64::from(sb.s_sequence.get()),
            at: (start != 0).then_some(start),
        };
        Jbd2Ring {
            first: u64::from(sb.s_first.get()),
            end: u64::from(sb.ring_end()),
            area,
            async_commit,
            canary,
            state: Mutex::new(State { sb, tail }),
        }
    }

    /// The superblock as a block.
    pub(crate) fn superblock_page(area: &LogArea, sb: &mut JournalSuperblock) -> Page {
        sb.update_checksum();
        Page::padded(area.block_size() as usize, sb.as_bytes())
    }

    /// Writes the superblock, durably with `barrier`.
    pub(crate) fn write_superblock(
        area: &LogArea,
        sb: &mut JournalSuperblock,
        barrier: bool,
    ) -> Result<()> {
        let page = Self::superblock_page(area, sb);
        let write = [Write::new(area.offset(0)?, &page)];
        if barrier {
            area.device().write_batch_flush(&write)?;
        } else {
            area.device().write_batch(&write)?;
        }
        Ok(())
    }

    /// Whether the commit block is written only after a flush of the blocks before it.
    fn seals_apart(&self, barrier: bool) -> bool {
        barrier && !self.async_commit && !self.canary.seal_early
    }

    /// The byte offset on the device of the commit block of a transaction at log block `at`.
    fn seal_at(&self, at: u64, tx: &Encoded) -> Result<u64> {
        self.area.offset(self.advance(at, tx.seal_at()))
    }
}

impl Medium for Jbd2Ring {
    fn first(&self) -> u64 {
        self.first
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn blocks<'a>(&self, at: u64, tx: &'a Encoded, barrier: bool) -> Result<WriteList<'a>> {
        let placed = tx.body().map(|(i, page)| (self.advance(at, i), page));
        let mut list = self.area.list(placed)?;
        if let Some(seal) = &tx.seal
            && !self.seals_apart(barrier)
        {
            list.push(self.seal_at(at, tx)?, seal);
        }
        Ok(list)
    }

    fn seal(&self, at: u64, tx: &Encoded, barrier: bool) -> Result<()> {
        let device = &**self.area.device();
        let apart = tx.seal.as_ref().filter(|_| self.seals_apart(barrier));
        if barrier && !(apart.is_some() && self.canary.body_volatile) {
            device.flush()?;
        }
        // As in the kernel: everything before is flushed, then the commit block is written with
        // FUA.
        if let Some(seal) = apart {
            let seal = Write::new(self.seal_at(at, tx)?, seal);
            device.write_batch(&[match self.canary.seal_volatile {
                true => seal,
                false => seal.fua(),
            }])?;
        }
        Ok(())
    }

    fn place(&self, at: u64) -> Result<Place> {
        self.area.place(self.lane(), at)
    }

    fn write_early(&self, at: u64, blocks: &[PageRef]) -> Result<()> {
        let places = (0..).map(|i| self.advance(at, i));
        self.area.write(places.zip(blocks))
    }

    fn flush_seals(&self) -> bool {
        self.async_commit
    }

    fn set_tail(&self, tail: LogTail, barrier: bool) -> Result<()> {
        let mut state = self.state.lock();
        let mut sb = state.sb;
        put_tail(&mut sb, tail);
        Self::write_superblock(&self.area, &mut sb, barrier)?;
        state.sb = sb;
        state.tail = tail;
        Ok(())
    }

    fn note_tail(&self, tail: LogTail) {
        let mut state = self.state.lock();
        put_tail(&mut state.sb, tail);
        state.tail = tail;
    }

    fn tail(&self) -> LogTail {
        self.state.lock().tail
    }

    fn read(&self, at: u64, count: u64) -> Result<Vec<PageRef>> {
        self.area.read((0..count).map(|i| self.advance(at, i)))
    }
}

/// Puts the start of the log into the superblock: in 32 bits, like the superblock's `s_maxlen`.
/// jbd2's tid is the low half of the sequence.
fn put_tail(sb: &mut JournalSuperblock, tail: LogTail) {
    sb.s_sequence = low32(tail.seq).into();
    sb.s_start = low32(tail.at.unwrap_or(0)).into();
}

/// A zeroed page filled in by `fill`.
pub(super) fn page(block_size: u32, fill: impl FnOnce(&mut [u8])) -> PageRef {
    let mut page = Page::zeroed(block_size as usize);
    fill(&mut page);
    Arc::new(page)
}
