//! Commit blocks: the record that ends a transaction.

use super::block::{BlockType, write_header};
use super::superblock::{Config, Csum};
use crate::bytes::{array_at, be32, put};
use crate::ext4::checksum::{crc32_be, ext4_crc32c};

/// Offset of `h_chksum_type`.
const TYPE_AT: usize = 12;
/// Offset of `h_chksum_size`.
const SIZE_AT: usize = 13;
/// Offset of `h_chksum[0]`.
const CHECKSUM_AT: usize = 16;
/// Bytes of `h_chksum[0]`.
pub const CHECKSUM: std::ops::Range<usize> = CHECKSUM_AT..CHECKSUM_AT + 4;
/// Offset of `h_commit_sec`.
const SEC_AT: usize = 48;
/// Offset of `h_commit_nsec`.
const NSEC_AT: usize = 56;
/// Bytes of the record with its padding; zeros follow.
pub const LEN: usize = 64;

/// `JBD2_CRC32_CHKSUM`, the type of a transaction's checksum, and its length in bytes.
const CRC32: [u8; 2] = [1, 4];

/// The checksum of a transaction in its commit block (checksum v1). It covers the descriptors and
/// images as stored, in the order of the log, and no revoke blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSum(u32);

impl Default for TransactionSum {
    fn default() -> Self {
        TransactionSum(!0)
    }
}

impl TransactionSum {
    /// Adds a block, if the log has checksum v1.
    pub fn add(&mut self, config: &Config, block: &[u8]) {
        if config.csum == Csum::V1 {
            self.0 = crc32_be(self.0, block);
        }
    }
}

/// The checksum of v2 and v3, over the record and `rest`.
fn checksum(config: &Config, block: &[u8], rest: &[u8]) -> Option<u32> {
    let before = block.get(..CHECKSUM_AT)?;
    let after = block.get(CHECKSUM_AT + 4..LEN)?;
    let sum = ext4_crc32c(ext4_crc32c(config.seed, before), &[0; 4]);
    Some(ext4_crc32c(ext4_crc32c(sum, after), rest))
}

/// Fills a zeroed block with a commit record of the given wall-clock time (seconds, nanoseconds).
/// `sum` is used with checksum v1.
pub fn encode(
    config: &Config,
    tid: u32,
    (sec, nsec): (u64, u32),
    sum: TransactionSum,
    block: &mut [u8],
) {
    write_header(block, BlockType::Commit, tid);
    let _ = put(block, SEC_AT, &sec.to_be_bytes());
    let _ = put(block, NSEC_AT, &nsec.to_be_bytes());
    match config.csum {
        Csum::None => {}
        Csum::V1 => {
            let _ = put(block, TYPE_AT, &CRC32);
            let _ = put(block, CHECKSUM_AT, &sum.0.to_be_bytes());
        }
        Csum::V2 | Csum::V3 => {
            let rest = block.get(LEN..).unwrap_or_default();
            if let Some(sum) = checksum(config, block, rest) {
                let _ = put(block, CHECKSUM_AT, &sum.to_be_bytes());
            }
        }
    }
}

/// Whether the checksum is valid (always, for logs without checksums). `sum` is used with checksum
/// v1, where a record without a checksum is valid, too.
///
/// With v2 and v3 a record is also valid if only the bytes behind it are not zero: the device wrote
/// the sector of the record and not those behind it, and the record is complete. The kernel accepts
/// such a block, too.
#[must_use]
pub fn verify(config: &Config, block: &[u8], sum: TransactionSum) -> bool {
    let Some(stored) = be32(block, CHECKSUM_AT) else {
        return false;
    };
    match config.csum {
        Csum::None => true,
        Csum::V1 => match [TYPE_AT, SIZE_AT].map(|at| block.get(at).copied().unwrap_or(0)) {
            CRC32 => stored == sum.0,
            kind => kind == [0; 2] && stored == 0,
        },
        Csum::V2 | Csum::V3 => {
            let rest = block.get(LEN..).unwrap_or_default();
            let with = |rest: &[u8]| checksum(config, block, rest) == Some(stored);
            with(rest) || with(&vec![0; rest.len()])
        }
    }
}

/// Wall-clock time of the commit: seconds and nanoseconds.
#[must_use]
pub fn time(block: &[u8]) -> (u64, u32) {
    (
        array_at::<8>(block, SEC_AT).map_or(0, u64::from_be_bytes),
        be32(block, NSEC_AT).unwrap_or(0),
    )
}
