//! A copy-on-write overlay: writes stay beside the device below.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rustix::fs::{Mode, OFlags};

use crate::mem::{PAGE, pieces};
use crate::range::{check_discard, check_range};
use crate::{
    BlockDevice, BlockError, Counters, MemDevice, Op, Read, Result, Share, ShareLimits, SharePair,
    Stats, Write, check_share,
};

/// Shows `base` with changes that never reach it. They are kept in memory, and beyond a limit in an
/// unnamed file.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    /// The changed pages, whole, in the order of their first write.
    top: Top,
    /// The index in `top` of each changed page, by page number.
    pages: RwLock<BTreeMap<u64, u64>>,
    counters: Counters,
}

/// Pages by index: the first ones in memory, the others in a file.
struct Top {
    memory: MemDevice,
    file: OnceLock<File>,
    /// Maximum size in bytes.
    most: u64,
}

impl Top {
    /// The storage of a page, and its offset there.
    fn at(&self, place: u64) -> Result<(Option<&File>, u64)> {
        let at = place * PAGE as u64;
        let Some(in_file) = at.checked_sub(self.memory.size()) else {
            return Ok((None, at));
        };
        let failed = |source: io::Error| BlockError::NoSpace {
            offset: at,
            len: PAGE as u64,
            source: Arc::new(source),
        };
        if at >= self.most {
            return Err(failed(io::Error::other(format!(
                "the trial run would change more than {} MiB, its limit",
                self.most >> 20
            ))));
        }
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = unnamed().map_err(failed)?;
                self.file.get_or_init(|| file)
            }
        };
        Ok((Some(file), in_file))
    }

    fn read(&self, place: u64, from: usize, buf: &mut [u8]) -> Result<()> {
        match self.at(place)? {
            (None, at) => self.memory.read(at + from as u64, buf),
            (Some(file), at) => {
                let at = at + from as u64;
                let len = buf.len();
                file.read_exact_at(buf, at)
                    .map_err(|e| failed(Op::Read, at, len, e))
            }
        }
    }

    fn write(&self, place: u64, from: usize, bytes: &[u8]) -> Result<()> {
        match self.at(place)? {
            (None, at) => self.memory.write(at + from as u64, bytes),
            (Some(file), at) => {
                let at = at + from as u64;
                let failed = |e| failed(Op::Write, at, bytes.len(), e);
                file.write_all_at(bytes, at).map_err(failed)
            }
        }
    }
}

fn failed(op: Op, offset: u64, len: usize, e: io::Error) -> BlockError {
    BlockError::Io {
        op,
        offset,
        len: len as u64,
        source: Arc::new(e),
    }
}

/// A file that is deleted when it is closed.
fn unnamed() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::open(std::env::temp_dir(), flags, mode)?.into())
}

impl Overlay {
    /// An overlay without changes. Its memory use is unlimited.
    pub fn new(base: Arc<dyn BlockDevice>) -> Overlay {
        Overlay::with_room(base, u64::MAX, u64::MAX)
    }

    /// An overlay that keeps changes of up to `memory` bytes, rounded up to pages, in memory, and
    /// of `most` bytes in all: writes beyond that fail (`NoSpace`).
    pub fn with_room(base: Arc<dyn BlockDevice>, memory: u64, most: u64) -> Overlay {
        let size = base.size().checked_next_multiple_of(PAGE as u64);
        let memory = memory.min(size.unwrap_or(u64::MAX)).div_ceil(PAGE as u64);
        let memory = MemDevice::new(memory * PAGE as u64);
        Overlay {
            top: Top {
                memory,
                file: OnceLock::new(),
                most,
            },
            pages: RwLock::default(),
            counters: Counters::default(),
            base,
        }
    }

    /// The changed ranges of bytes, in whole 4 KiB pages cut to the size, ascending.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in self.pages.read().keys() {
            let bytes = self.bytes(*page);
            match ranges.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => ranges.push(bytes),
            }
        }
        ranges
    }

    fn bytes(&self, page: u64) -> Range<u64> {
        let start = page * PAGE as u64;
        start..(start + PAGE as u64).min(self.base.size())
    }

    /// Reads the changed pages, and lists the unchanged ranges to be read from the base in one
    /// batch.
    fn read_one<'b>(
        &self,
        pages: &BTreeMap<u64, u64>,
        offset: u64,
        buf: &'b mut [u8],
        below: &mut Vec<Read<'b>>,
    ) -> Result<()> {
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            // One changed page, or all adjacent unchanged ones.
            let above = pages.get(&(at / PAGE as u64));
            let len = pieces(at, rest.len() as u64)
                .take(above.map_or(usize::MAX, |_| 1))
                .take_while(|p| above.is_some() || !pages.contains_key(&p.page))
                .map(|p| p.in_page.len())
                .sum();
            let (mine, next) = rest.split_at_mut(len);
            match above {
                Some(place) => self.top.read(*place, (at % PAGE as u64) as usize, mine)?,
                None => below.push(Read::new(at, mine)),
            }
            at += len as u64;
            rest = next;
        }
        Ok(())
    }

    fn write_one(&self, pages: &mut BTreeMap<u64, u64>, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in pieces(offset, data.len() as u64) {
            let (mine, next) = rest.split_at(piece.in_page.len());
            let place = match pages.get(&piece.page) {
                Some(place) => *place,
                None => {
                    let place = pages.len() as u64;
                    if mine.len() < PAGE {
                        self.lift(piece.page, place)?;
                    }
                    place
                }
            };
            self.top.write(place, piece.in_page.start, mine)?;
            pages.insert(piece.page, place);
            rest = next;
        }
        Ok(())
    }

    /// Copies a page to the overlay before a write to a part of it.
    fn lift(&self, page: u64, place: u64) -> Result<()> {
        let bytes = self.bytes(page);
        let mut old = [0; PAGE];
        let old = &mut old[..(bytes.end - bytes.start) as usize];
        self.base.read(bytes.start, old)?;
        self.top.write(place, 0, old)
    }
}

impl BlockDevice for Overlay {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let pages = self.pages.read();
        let mut below = Vec::new();
        for read in reads {
            check_range(Op::Read, read.offset, read.len(), self.size())?;
            self.counters.read(1, read.len());
            let mut at = read.offset;
            for slice in read.data.slices_mut() {
                let len = slice.len() as u64;
                self.read_one(&pages, at, slice, &mut below)?;
                at += len;
            }
        }
        self.base.read_batch(&mut below)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut pages = self.pages.write();
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size())?;
            self.counters.write(1, write.len());
            let mut at = write.offset;
            for slice in write.data.slices() {
                self.write_one(&mut pages, at, slice)?;
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        Ok(())
    }

    /// Discarded content stays as it was.
    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.size())?;
        self.counters.discard(range.end.saturating_sub(range.start));
        Ok(())
    }

    /// Available if the base shares; the overlay shares by copying in memory.
    fn share(&self) -> Option<&dyn Share> {
        self.base.share().is_some().then_some(self as &dyn Share)
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Share for Overlay {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.base)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        check_share(pairs, &self.limits(), self.size())?;
        self.counters.share(pairs);
        let mut pages = self.pages.write();
        for pair in pairs {
            let mut bytes = vec![0; pair.len as usize];
            let mut below = Vec::new();
            self.read_one(&pages, pair.src, &mut bytes, &mut below)?;
            self.base.read_batch(&mut below)?;
            self.write_one(&mut pages, pair.dst, &bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_base_shows_through_and_stays_as_it_was() {
        let base = Arc::new(MemDevice::from_image(&[1; 20_000]));
        let before = base.fork();
        let over = Overlay::new(base.clone());
        assert!(!over.read_only() && over.changed().is_empty());
        over.write(5000, &[2; 10]).unwrap();
        over.write(8192, &[3; 4096]).unwrap();
        over.write(19_990, &[4; 10]).unwrap();
        let mut seen = vec![0; 20_000];
        over.read(0, &mut seen).unwrap();
        let mut model = vec![1; 20_000];
        model[5000..5010].fill(2);
        model[8192..12_288].fill(3);
        model[19_990..].fill(4);
        assert!(seen == model);
        assert_eq!(over.changed(), [4096..12_288, 16_384..20_000]);
        assert!(base.differences(&before).is_empty());
    }

    #[test]
    fn beyond_its_memory_it_takes_a_file_and_then_no_more() {
        let base: Arc<dyn BlockDevice> = Arc::new(MemDevice::from_image(&[1; 100_000]));
        let over = Overlay::with_room(Arc::clone(&base), 8192, 16_384);
        for (i, page) in [9, 3, 0, 7].into_iter().enumerate() {
            over.write(page * 4096 + 5, &[i as u8 + 2; 4000]).unwrap();
        }
        assert!(over.top.file.get().is_some());
        let mut seen = vec![0; 100_000];
        over.read(0, &mut seen).unwrap();
        let mut model = vec![1; 100_000];
        for (i, page) in [9, 3, 0, 7].into_iter().enumerate() {
            model[page * 4096 + 5..][..4000].fill(i as u8 + 2);
        }
        assert!(seen == model);
        let full = over.write(8 * 4096, &[6; 4096]);
        assert!(matches!(full, Err(BlockError::NoSpace { .. })), "{full:?}");
        over.write(3 * 4096, &[7; 4096]).unwrap();
        assert_eq!(
            over.changed(),
            [0..4096, 12_288..16_384, 28_672..32_768, 36_864..40_960]
        );
    }
}
