//! A range of another device, as a device: the partition of an image of a whole disk.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::range::{check_discard, check_range};
use crate::{
    BlockDevice, BlockError, Op, Read, Result, Share, ShareLimits, SharePair, Stats, Write,
    check_share, sharing_of,
};

/// A range of bytes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Span {
    /// The first byte behind it; a span that passed [`check`](Self::check) has one.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Whether two spans have bytes in common.
    pub fn overlaps(&self, other: &Span) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Checks that the span is a place for a volume on a device of `size` bytes with such sectors.
    /// A sector of the span, which is written atomically, must be a sector of the device.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn check(&self, size: u64, sector: u32) -> std::result::Result<(), String> {
        let Span { start, len } = *self;
        let whole = |n: u64| n.is_multiple_of(u64::from(sector.max(1)));
        match start.checked_add(len) {
            _ if len == 0 => Err(format!("the part of it at byte {start} is empty")),
            Some(end) if end > size => Err(format!(
                "the part of it from byte {start} to {end} is beyond its end at byte {size}"
            )),
            None => Err(format!(
                "the part of it at byte {start} ends beyond byte 2^64"
            )),
            _ if !whole(start) => Err(format!(
                "a part of it cannot begin at byte {start}: it has sectors of {sector} bytes"
            )),
            Some(end) if !whole(end) && end != size => Err(format!(
                "a part of it cannot end at byte {end}: it has sectors of {sector} bytes"
            )),
            Some(_) => Ok(()),
        }
    }
}

/// A device that shows a span of `inner`. Errors name offsets in the window.
pub struct Window<D> {
    inner: D,
    span: Span,
}

impl<D: BlockDevice> Window<D> {
    /// The bytes of `span`. `path` names the device in errors.
    ///
    /// # Errors
    /// [`BlockError::Unsuitable`] unless the span lies on the device and begins and ends with
    /// sectors of it.
    pub fn new(inner: D, span: Span, path: &Path) -> Result<Window<D>> {
        span.check(inner.size(), inner.sector_size())
            .map_err(|reason| BlockError::Unsuitable {
                path: path.to_owned(),
                reason,
            })?;
        Ok(Window { inner, span })
    }

    /// The span that it shows.
    pub fn span(&self) -> Span {
        self.span
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        check_range(op, offset, len, self.span.len)
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn size(&self) -> u64 {
        self.span.len
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    /// The alignment of the inner device, if the span begins at a multiple of it.
    fn dio_align(&self) -> u32 {
        let align = self.inner.dio_align();
        match self.span.start.is_multiple_of(u64::from(align.max(1))) {
            true => align,
            false => 1,
        }
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        for read in reads.iter() {
            self.check(Op::Read, read.offset, read.len())?;
        }
        for read in reads.iter_mut() {
            read.offset += self.span.start;
        }
        let done = self.inner.read_batch(reads);
        for read in reads.iter_mut() {
            read.offset -= self.span.start;
        }
        self.seen(done)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.seen(self.inner.write_batch(&self.moved(writes)?))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
        self.seen(self.inner.write_batch_flush(&self.moved(writes)?))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        check_discard(&range, self.span.len)?;
        self.seen(self.inner.discard(self.range(range)))
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.check(Op::Write, range.start, len)?;
        self.seen(self.inner.zero(self.range(range)))
    }

    /// Available if the units of the window are units of the inner device.
    fn share(&self) -> Option<&dyn Share> {
        let unit = self.inner.share()?.limits().unit;
        let fits = self.span.start.is_multiple_of(u64::from(unit.max(1)));
        fits.then_some(self as &dyn Share)
    }

    /// The window on a copy.
    fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
        let span = self.span;
        let window = |inner| Arc::new(Window { inner, span }) as Arc<dyn BlockDevice>;
        self.inner.snapshot().map(window)
    }

    /// The inner device's counters: they include requests of other windows.
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Window<D> {
    /// Converts errors of the inner device to offsets in the window.
    fn seen<T>(&self, answer: Result<T>) -> Result<T> {
        answer.map_err(|e| e.seen_from(self.span.start))
    }

    fn moved<'a>(&self, writes: &[Write<'a>]) -> Result<Vec<Write<'a>>> {
        let moved = writes.iter().map(|write| {
            self.check(Op::Write, write.offset, write.len())?;
            Ok(Write {
                offset: write.offset + self.span.start,
                ..*write
            })
        });
        moved.collect()
    }

    /// A checked range, in bytes of the inner device. An inverted one is empty.
    fn range(&self, range: Range<u64>) -> Range<u64> {
        let start = range.start + self.span.start;
        start..start + range.end.saturating_sub(range.start)
    }
}

impl<D: BlockDevice> Share for Window<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let below = sharing_of(&self.inner)?;
        check_share(pairs, &below.limits(), self.span.len)?;
        let start = self.span.start;
        let moved = pairs.iter().map(|pair| SharePair {
            dst: pair.dst + start,
            src: pair.src + start,
            len: pair.len,
        });
        self.seen(below.share_batch(&moved.collect::<Vec<_>>()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemDevice;

    fn window(size: u64, start: u64, len: u64) -> Result<Window<Arc<MemDevice>>> {
        let disk = Arc::new(MemDevice::new(size).with_share(64, true));
        Window::new(disk, Span { start, len }, Path::new("disk"))
    }

    #[test]
    fn nothing_outside_is_touched() {
        const PART: Span = Span {
            start: 4096,
            len: 8192,
        };
        let disk = Arc::new(MemDevice::new(16384));
        disk.write(0, &[7; 16384]).unwrap();
        let window = Window::new(disk.clone(), PART, Path::new("disk")).unwrap();
        assert_eq!(window.size(), 8192);
        window.write(0, &[1; 512]).unwrap();
        let last = [Write::new(8192 - 512, &[2; 512])];
        window.write_batch_flush(&last).unwrap();
        window.zero(512..1024).unwrap();
        window.discard(1024..2048).unwrap();
        let mut all = vec![0; 16384];
        disk.read(0, &mut all).unwrap();
        let at = |range: Range<usize>, byte: u8| all[range].iter().all(|b| *b == byte);
        assert!(at(0..4096, 7) && at(12288..16384, 7));
        assert!(at(4096..4608, 1) && at(4608..5120, 0) && at(11776..12288, 2));

        let mut buf = [0; 512];
        for offset in [8192 - 100, 8192, u64::MAX, u64::MAX - 5000] {
            assert!(window.read(offset, &mut buf).is_err(), "{offset}");
            assert!(window.write(offset, &buf).is_err(), "{offset}");
            assert!(
                window.discard(offset..offset.saturating_add(512)).is_err() || offset == u64::MAX
            );
        }
        assert!(window.zero(0..8193).is_err());
        assert!(window.discard(0..8193).is_err());
        // The requests of a batch keep their offsets.
        let mut reads = [Read::new(512, &mut buf)];
        window.read_batch(&mut reads).unwrap();
        assert_eq!(reads[0].offset, 512);
        let (after, below) = (disk.stats(), window.stats());
        assert_eq!(below, after);
    }

    fn between_units() -> Window<Arc<MemDevice>> {
        window(1 << 20, 512, 4096).unwrap()
    }

    #[test]
    fn pairs_are_shared_inside_of_it() {
        let window = window(1 << 20, 4096 * 4, 4096 * 8).unwrap();
        let share = window.share().unwrap();
        window.write(4096, &[5; 4096]).unwrap();
        share.share_range(0, 4096, 4096).unwrap();
        let mut buf = [0; 4096];
        window.read(0, &mut buf).unwrap();
        assert_eq!(buf, [5; 4096]);
        assert!(share.share_range(4096 * 8, 0, 4096).is_err());
        assert!(share.share_range(0, 4096 * 8, 4096).is_err());
        assert!(between_units().share().is_none());
    }

    #[test]
    fn only_whole_sectors_of_the_device_are_a_place() {
        let why = |start, len| window(16384 + 100, start, len).map(drop).unwrap_err();
        let said = |start, len| why(start, len).to_string();
        assert!(said(512, 0).contains("is empty"));
        assert!(said(0, 16385 + 100).contains("beyond its end at byte 16484"));
        assert!(said(16896, 512).contains("beyond its end"));
        assert!(said(512, u64::MAX).contains("ends beyond byte 2^64"));
        assert!(said(100, 1024).contains("cannot begin at byte 100"));
        assert!(said(512, 1000).contains("cannot end at byte 1512"));
        // The end of the device counts as a sector's end.
        assert!(window(16384 + 100, 512, 16384 + 100 - 512).is_ok());
    }

    #[test]
    fn spans_meet_where_they_have_bytes_in_common() {
        let span = |start, len| Span { start, len };
        assert!(span(0, 10).overlaps(&span(9, 1)));
        assert!(!span(0, 10).overlaps(&span(10, 1)));
        assert!(span(5, u64::MAX).overlaps(&span(1 << 60, 1)));
    }
}
