//! The StetFS log: the header with its lanes, and frames with checksums of their own
//! (`docs/format/stet.md`). Little-endian.

pub mod changes;
pub mod frame;
pub mod header;
pub mod record;
pub mod region;

use xxhash_rust::xxh3::xxh3_64;

/// The checksum of the log: XXH3, 64 bits.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The number of pieces of `size` bytes that hold `bytes`.
fn pieces(bytes: usize, size: usize) -> usize {
    bytes.div_ceil(size.max(1))
}
