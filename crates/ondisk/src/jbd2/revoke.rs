//! Revoke blocks: they void the images of the listed blocks in this and older transactions.

use super::block::{BlockType, HEADER_LEN, update_tail, write_header};
use super::superblock::Config;
use crate::bytes::{array_at, be32, put};
use crate::error::{Result, corrupt};
use crate::num::{count32, low32};

/// Offset of the first entry: header and `r_count`.
const FIRST: usize = HEADER_LEN + 4;

fn entry_len(config: &Config) -> usize {
    if config.wide { 8 } else { 4 }
}

/// The number of entries that fit in one revoke block.
#[must_use]
pub fn entries_per_block(config: &Config) -> usize {
    (config.block_size as usize).saturating_sub(FIRST + config.tail_len()) / entry_len(config)
}

/// Fills a zeroed block with as many of `blocks` as fit; returns how many.
pub fn encode(config: &Config, tid: u32, blocks: &[u64], block: &mut [u8]) -> usize {
    write_header(block, BlockType::Revoke, tid);
    let count = blocks.len().min(entries_per_block(config));
    let len = entry_len(config);
    for (i, nr) in blocks.iter().take(count).enumerate() {
        let at = FIRST + i * len;
        let _ = if config.wide {
            put(block, at, &nr.to_be_bytes())
        } else {
            put(block, at, &low32(*nr).to_be_bytes())
        };
    }
    let used = count32(FIRST + count * len);
    let _ = put(block, HEADER_LEN, &used.to_be_bytes());
    if config.csum.in_blocks() {
        update_tail(config.seed, block);
    }
    count
}

/// Reads the revoked block numbers (the caller checks header and checksum).
///
/// # Errors
/// `Corrupt` when `r_count` exceeds the block.
pub fn decode(config: &Config, block: &[u8]) -> Result<Vec<u64>> {
    let used = be32(block, HEADER_LEN).unwrap_or(0) as usize;
    let end = block.len().saturating_sub(config.tail_len());
    if used < FIRST || used > end {
        return Err(corrupt!(
            "journal revoke block",
            "r_count {used} of {end} bytes"
        ));
    }
    let len = entry_len(config);
    Ok((FIRST..=used.saturating_sub(len))
        .step_by(len)
        .filter_map(|at| {
            if config.wide {
                array_at::<8>(block, at).map(u64::from_be_bytes)
            } else {
                be32(block, at).map(u64::from)
            }
        })
        .collect())
}
