//! Memory for content on its way.

use std::hint::black_box;

use stetfs::low::{AlignedBuf, FsError};

/// Pieces up to the first have memory of this size, longer ones of the second: sizes that are used
/// again.
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
/// What usual requests take of a buffer; what streams take they touch as they come.
const USUAL: usize = 128 << 10;
const PAGE: usize = 4096;

/// Puts what was read into memory, and says how many bytes.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, FsError>;

/// Calls `work` with `len` bytes of whatever content.
pub(crate) fn with<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let size = if len <= SIZES[0] { SIZES[0] } else { SIZES[1] };
    let mut buf = AlignedBuf::scratch(size.max(len));
    work(buf.get_mut(..len).unwrap_or_default())
}

/// Makes zero bytes at the beginning of `buffer`, as many as usual requests take, so that no
/// request waits for the memory.
pub(crate) fn touch(buffer: &mut [u8]) {
    let usual = buffer.len().min(USUAL);
    for at in (0..usual).step_by(PAGE) {
        if let Some(byte) = buffer.get_mut(at) {
            *byte = black_box(0);
        }
    }
}
