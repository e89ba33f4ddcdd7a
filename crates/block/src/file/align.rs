//! The alignment that O_DIRECT needs, and bounce buffers for requests that lack it.

use std::ops::Range;

use crate::AlignedBuf;

/// The alignment that O_DIRECT needs, in bytes; powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Align {
    pub(super) memory: usize,
    pub(super) offset: u32,
}

impl Align {
    /// The smallest aligned range around `len` bytes at `offset`.
    pub(super) fn enclose(&self, offset: u64, len: u64) -> Range<u64> {
        let a = u64::from(self.offset);
        offset / a * a..(offset + len).div_ceil(a) * a
    }

    /// Whether the range begins and ends at the alignment.
    pub(super) fn range(&self, offset: u64, len: u64) -> bool {
        let a = u64::from(self.offset);
        offset.is_multiple_of(a) && len.is_multiple_of(a)
    }

    /// Whether the kernel accepts this slice.
    pub(super) fn slice(&self, slice: &[u8]) -> bool {
        (slice.as_ptr() as usize).is_multiple_of(self.memory)
            && slice.len().is_multiple_of(self.offset as usize)
    }
}

/// A bounce buffer: its first `len` bytes belong at `start` on the device.
pub(super) struct Bounce {
    pub(super) buf: AlignedBuf,
    pub(super) start: u64,
    pub(super) len: usize,
}

impl Bounce {
    pub(super) fn new(range: Range<u64>, align: Align) -> Self {
        let len = (range.end - range.start) as usize;
        Bounce {
            buf: AlignedBuf::scratch(len.max(align.memory)),
            start: range.start,
            len,
        }
    }

    /// The bytes from `offset` on.
    pub(super) fn at(&mut self, offset: u64) -> &mut [u8] {
        &mut self.buf[(offset - self.start) as usize..self.len]
    }
}
