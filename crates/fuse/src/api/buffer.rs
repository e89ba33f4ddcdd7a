//! Buffers for content in transit.

use std::hint::black_box;

use stetfs::low::{AlignedBuf, FsError};

/// Buffer sizes in bytes: data up to the first size gets that, longer data the second. Few sizes
/// make reuse likely.
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
/// Bytes of a buffer that usual requests use; the pages behind are touched only by streams, on
/// demand.
const USUAL: usize = 128 << 10;
const PAGE: usize = 4096;

/// A function that reads into a buffer and returns the number of bytes.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, FsError>;

/// Calls `work` with a buffer of `len` bytes of unspecified content.
pub(crate) fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let size = if len <= SIZES[0] { SIZES[0] } else { SIZES[1] };
    let mut buf = AlignedBuf::scratch(size.max(len));
    work(buf.get_mut(..len).unwrap_or_default())
}

/// Zeroes the beginning of `buffer`, as much as usual requests use, so that no request waits for
/// the memory.
pub(crate) fn touch(buffer: &mut [u8]) {
    let usual = buffer.len().min(USUAL);
    for at in (0..usual).step_by(PAGE) {
        if let Some(byte) = buffer.get_mut(at) {
            *byte = black_box(0);
        }
    }
}
