//! Descriptor blocks: tags with the home block of each data block that follows.

use super::block::{BlockType, HEADER_LEN, update_tail, write_header};
use super::superblock::{Config, Csum};
use crate::bytes::{array_at, be32, put};
use crate::ext4::checksum::ext4_crc32c;
use crate::num::{high32, low16, low32};

/// The data block began with jbd2's magic, which was replaced by zeros.
pub const FLAG_ESCAPE: u32 = 1;
/// No UUID follows the tag.
pub const FLAG_SAME_UUID: u32 = 2;
/// Block deleted by this transaction (never written).
pub const FLAG_DELETED: u32 = 4;
/// Last tag of the descriptor.
pub const FLAG_LAST: u32 = 8;

const UUID_LEN: usize = 16;

/// One tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Home block of the image.
    pub block: u64,
    /// `FLAG_*`.
    pub flags: u32,
    /// Checksum of the stored image: 32 bits with v3, 16 with v2, else 0.
    pub checksum: u32,
}

/// Bytes of a tag without the UUID.
#[must_use]
pub fn tag_len(config: &Config) -> usize {
    // Block number, 16-bit checksum, 16-bit flags, and the high half when wide; v2 adds two unused
    // bytes.
    match (config.csum, config.wide) {
        (Csum::V3, _) => 16,
        (Csum::V2, true) => 14,
        (Csum::V2, false) => 10,
        (Csum::V1 | Csum::None, true) => 12,
        (Csum::V1 | Csum::None, false) => 8,
    }
}

/// The number of tags that fit in one descriptor.
#[must_use]
pub fn tags_per_block(config: &Config) -> usize {
    (config.block_size as usize).saturating_sub(HEADER_LEN + UUID_LEN + config.tail_len())
        / tag_len(config)
}

/// The tag's checksum of a stored image (after escaping).
#[must_use]
pub fn image_checksum(config: &Config, tid: u32, stored: &[u8]) -> u32 {
    if !config.csum.in_blocks() {
        return 0;
    }
    let sum = ext4_crc32c(ext4_crc32c(config.seed, &tid.to_be_bytes()), stored);
    if config.csum == Csum::V2 {
        sum & 0xffff
    } else {
        sum
    }
}

/// Fills a zeroed block with a descriptor for as many of `tags` as fit; returns how many. It sets
/// the flags for the UUID and the last tag.
pub fn encode(config: &Config, tid: u32, uuid: &[u8; 16], tags: &[Tag], block: &mut [u8]) -> usize {
    write_header(block, BlockType::Descriptor, tid);
    let count = tags.len().min(tags_per_block(config));
    let mut at = HEADER_LEN;
    for (i, tag) in tags.iter().take(count).enumerate() {
        let mut flags = tag.flags & FLAG_ESCAPE;
        if i > 0 {
            flags |= FLAG_SAME_UUID;
        }
        if i + 1 == count {
            flags |= FLAG_LAST;
        }
        let low = low32(tag.block).to_be_bytes();
        let high = high32(tag.block).to_be_bytes();
        let _ = put(block, at, &low);
        match config.csum {
            Csum::V3 => {
                let _ = put(block, at + 4, &flags.to_be_bytes());
                let _ = put(block, at + 8, if config.wide { &high } else { &[0; 4] });
                let _ = put(block, at + 12, &tag.checksum.to_be_bytes());
            }
            Csum::V2 | Csum::V1 | Csum::None => {
                let _ = put(block, at + 4, &low16(tag.checksum).to_be_bytes());
                let _ = put(block, at + 6, &low16(flags).to_be_bytes());
                if config.wide {
                    let _ = put(block, at + 8, &high);
                }
            }
        }
        at += tag_len(config);
        if i == 0 {
            let _ = put(block, at, uuid);
            at += UUID_LEN;
        }
    }
    if config.csum.in_blocks() {
        update_tail(config.seed, block);
    }
    count
}

/// Reads the tags of a descriptor (the caller checks header and checksum). They end with the
/// last-tag flag, or where the block has no room for another tag: not every writer sets the flag in
/// a full block.
#[must_use]
pub fn decode(config: &Config, block: &[u8]) -> Vec<Tag> {
    let end = block.len().saturating_sub(config.tail_len());
    let len = tag_len(config);
    let mut tags = Vec::new();
    let mut at = HEADER_LEN;
    while at + len <= end {
        let word = |off: usize| be32(block, at + off).unwrap_or(0);
        let low = u64::from(word(0));
        let (flags, checksum, high) = match config.csum {
            Csum::V3 => (word(4), word(12), if config.wide { word(8) } else { 0 }),
            Csum::V2 | Csum::V1 | Csum::None => {
                let half = |off| array_at::<2>(block, at + off).map_or(0, u16::from_be_bytes);
                (
                    u32::from(half(6)),
                    u32::from(half(4)),
                    if config.wide { word(8) } else { 0 },
                )
            }
        };
        tags.push(Tag {
            block: u64::from(high) << 32 | low,
            flags,
            checksum,
        });
        at += len;
        if flags & FLAG_SAME_UUID == 0 {
            at += UUID_LEN;
        }
        if flags & FLAG_LAST != 0 {
            break;
        }
    }
    tags
}
