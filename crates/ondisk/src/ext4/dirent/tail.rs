//! The checksum tail of a directory block.

use super::entry::{TAIL_LEN, written};
use crate::bytes::{le32, put};
use crate::error::{Result, corrupt};
use crate::ext4::checksum::ext4_crc32c;

/// The tail before its checksum: inode 0, `rec_len` 12, no name, type 0xDE (`det_reserved_ft`).
const TAIL_HEAD: [u8; 8] = [0, 0, 0, 0, 12, 0, 0, 0xDE];

/// Whether the block ends in a checksum tail.
#[must_use]
pub fn has_tail(block: &[u8]) -> bool {
    let Some(tail) = block.last_chunk::<TAIL_LEN>() else {
        return false;
    };
    tail.starts_with(&TAIL_HEAD)
}

/// The checksum of a linear directory block: it covers everything up to the tail. `seed` is the
/// [`inode_seed`](crate::ext4::checksum::inode_seed) of the directory.
#[must_use]
pub fn checksum(block: &[u8], seed: u32) -> u32 {
    ext4_crc32c(
        seed,
        block
            .get(..block.len().saturating_sub(TAIL_LEN))
            .unwrap_or(block),
    )
}

/// Verifies the checksum of a linear directory block; also fails if there is no tail.
pub fn verify_checksum(block: &[u8], seed: u32) -> Result<()> {
    if !has_tail(block) {
        return Err(corrupt!("directory block", "no checksum tail"));
    }
    let stored = le32(block, block.len() - 4).unwrap_or(0);
    let computed = checksum(block, seed);
    if stored != computed {
        return Err(corrupt!(
            "directory block",
            "checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores the checksum in the tail; fails if there is no tail.
pub fn update_checksum(block: &mut [u8], seed: u32) -> Result<()> {
    if !has_tail(block) {
        return Err(corrupt!("directory block", "no checksum tail"));
    }
    let sum = checksum(block, seed);
    let at = block.len() - 4;
    written(put(block, at, &sum.to_le_bytes()), at)
}

pub(super) fn write_tail_head(block: &mut [u8], at: usize) -> Result<()> {
    written(put(block, at, &TAIL_HEAD), at)
}
