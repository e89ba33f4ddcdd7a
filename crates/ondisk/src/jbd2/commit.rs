//! Commit blocks: the end of a transaction.

use super::block::{BlockType, write_header};
use super::superblock::{Config, Csum};
use crate::bytes::{array_at, be32, put};
use crate::ext4::checksum::ext4_crc32c;

/// Offset of `h_chksum[0]`.
const CHECKSUM_AT: usize = 16;
/// Offset of `h_commit_sec`.
const SEC_AT: usize = 48;
/// Offset of `h_commit_nsec`.
const NSEC_AT: usize = 56;

fn checksum(config: &Config, block: &[u8]) -> Option<u32> {
    let before = block.get(..CHECKSUM_AT)?;
    let after = block.get(CHECKSUM_AT + 4..)?;
    Some(ext4_crc32c(
        ext4_crc32c(ext4_crc32c(config.seed, before), &[0; 4]),
        after,
    ))
}

/// Fills a zeroed block with a commit record of the given wall-clock time.
pub fn encode(config: &Config, tid: u32, sec: u64, nsec: u32, block: &mut [u8]) {
    write_header(block, BlockType::Commit, tid);
    let _ = put(block, SEC_AT, &sec.to_be_bytes());
    let _ = put(block, NSEC_AT, &nsec.to_be_bytes());
    if config.csum != Csum::None
        && let Some(sum) = checksum(config, block)
    {
        let _ = put(block, CHECKSUM_AT, &sum.to_be_bytes());
    }
}

/// Whether the checksum is right (always, for logs without checksums).
#[must_use]
pub fn verify(config: &Config, block: &[u8]) -> bool {
    config.csum == Csum::None
        || (be32(block, CHECKSUM_AT).is_some()
            && be32(block, CHECKSUM_AT) == checksum(config, block))
}

/// Wall-clock time of the commit: seconds and nanoseconds.
#[must_use]
pub fn time(block: &[u8]) -> (u64, u32) {
    (
        array_at::<8>(block, SEC_AT).map_or(0, u64::from_be_bytes),
        be32(block, NSEC_AT).unwrap_or(0),
    )
}
