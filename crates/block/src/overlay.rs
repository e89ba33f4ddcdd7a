//! A device that another is looked at through: what is written stays in memory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::{check_discard, check_range};
use crate::mem::{PAGE, pieces};
use crate::{
    BlockDevice, Counters, MemDevice, Op, Read, Result, Share, ShareLimits, SharePair, Stats,
    Write, check_share,
};

/// Shows `base` with changes that never reach it. Takes as much memory as is written.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    /// The pages that were written, whole.
    top: MemDevice,
    /// Their numbers.
    pages: RwLock<BTreeSet<u64>>,
    counters: Counters,
}

impl Overlay {
    /// Nothing changed yet.
    pub fn new(base: Arc<dyn BlockDevice>) -> Overlay {
        Overlay {
            top: MemDevice::new(base.size()).with_sector_size(base.sector_size()),
            pages: RwLock::default(),
            counters: Counters::default(),
            base,
        }
    }

    /// The ranges of bytes that were written, in whole 4 KiB pages cut to the size, ascending.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in self.pages.read().iter() {
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

    fn read_one(&self, pages: &BTreeSet<u64>, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            // As many as lie together in one of the two.
            let on_top = |at: u64| pages.contains(&(at / PAGE as u64));
            let top = on_top(at);
            let len = pieces(at, rest.len() as u64)
                .take_while(|p| pages.contains(&p.page) == top)
                .map(|p| p.in_page.len())
                .sum();
            let (mine, next) = rest.split_at_mut(len);
            match top {
                true => self.top.read(at, mine)?,
                false => self.base.read(at, mine)?,
            }
            at += len as u64;
            rest = next;
        }
        Ok(())
    }

    /// Before a page is written in part.
    fn lift(&self, pages: &mut BTreeSet<u64>, page: u64, whole: bool) -> Result<()> {
        if !pages.contains(&page) {
            let bytes = self.bytes(page);
            if !whole {
                let mut old = [0; PAGE];
                let old = &mut old[..(bytes.end - bytes.start) as usize];
                self.base.read(bytes.start, old)?;
                self.top.write(bytes.start, old)?;
            }
            pages.insert(page);
        }
        Ok(())
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
        for read in reads {
            check_range(Op::Read, read.offset, read.len(), self.size())?;
            self.counters.read(1, read.len());
            let mut at = read.offset;
            for slice in read.data.slices_mut() {
                self.read_one(&pages, at, slice)?;
                at += slice.len() as u64;
            }
        }
        Ok(())
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut pages = self.pages.write();
        for write in writes {
            check_range(Op::Write, write.offset, write.len(), self.size())?;
            self.counters.write(1, write.len());
            for piece in pieces(write.offset, write.len()) {
                let whole = piece.in_page.len() == PAGE;
                self.lift(&mut pages, piece.page, whole)?;
            }
        }
        self.top.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush();
        Ok(())
    }

    /// What is discarded reads as it was.
    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.size())?;
        self.counters.discard(range.end.saturating_sub(range.start));
        Ok(())
    }

    /// Where the base can; then by copies in memory.
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
            self.read_one(&pages, pair.src, &mut bytes)?;
            for piece in pieces(pair.dst, pair.len) {
                self.lift(&mut pages, piece.page, piece.in_page.len() == PAGE)?;
            }
            self.top.write(pair.dst, &bytes)?;
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
}
