//! The header of every jbd2 block, and the checksum tail of descriptor and revoke blocks.

use zerocopy::byteorder::{BE, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::{assert_layout, be32, put};
use crate::ext4::checksum::ext4_crc32c;

/// `h_magic`.
pub const MAGIC: u32 = 0xc03b_3998;

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;

/// Bytes of the checksum at the end of a descriptor or revoke block (checksum v2 and v3).
pub const TAIL_LEN: usize = 4;

/// `journal_header_t`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// [`MAGIC`].
    pub h_magic: U32<BE>,
    /// See [`BlockType`].
    pub h_blocktype: U32<BE>,
    /// Transaction id (tid).
    pub h_sequence: U32<BE>,
}

assert_layout!(BlockHeader, 12, { h_magic: 0, h_blocktype: 4, h_sequence: 8 });

/// `h_blocktype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum BlockType {
    /// Tags for the data blocks that follow.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// Superblock, version 1.
    SuperblockV1 = 3,
    /// Superblock, version 2.
    SuperblockV2 = 4,
    /// Revokes older images of the listed blocks.
    Revoke = 5,
}

impl BlockType {
    /// Decodes the number on disk.
    #[must_use]
    pub fn from_u32(v: u32) -> Option<BlockType> {
        Some(match v {
            1 => BlockType::Descriptor,
            2 => BlockType::Commit,
            3 => BlockType::SuperblockV1,
            4 => BlockType::SuperblockV2,
            5 => BlockType::Revoke,
            _ => return None,
        })
    }
}

/// The type and tid of a jbd2 block; `None` if it is not one.
#[must_use]
pub fn read_header(block: &[u8]) -> Option<(BlockType, u32)> {
    let (h, _) = BlockHeader::ref_from_prefix(block).ok()?;
    if h.h_magic.get() != MAGIC {
        return None;
    }
    Some((
        BlockType::from_u32(h.h_blocktype.get())?,
        h.h_sequence.get(),
    ))
}

/// Writes the header at the start of `block`.
pub fn write_header(block: &mut [u8], kind: BlockType, tid: u32) {
    let h = BlockHeader {
        h_magic: MAGIC.into(),
        h_blocktype: (kind as u32).into(),
        h_sequence: tid.into(),
    };
    let _ = h.write_to_prefix(block);
}

fn tail_checksum(seed: u32, block: &[u8]) -> Option<u32> {
    let body = block.get(..block.len().checked_sub(TAIL_LEN)?)?;
    Some(ext4_crc32c(ext4_crc32c(seed, body), &[0; TAIL_LEN]))
}

/// Whether the checksum in the tail of a descriptor or revoke block is valid.
#[must_use]
pub fn verify_tail(seed: u32, block: &[u8]) -> bool {
    let stored = block
        .len()
        .checked_sub(TAIL_LEN)
        .and_then(|at| be32(block, at));
    stored.is_some() && stored == tail_checksum(seed, block)
}

/// Sets the checksum in the tail.
pub fn update_tail(seed: u32, block: &mut [u8]) {
    if let Some(sum) = tail_checksum(seed, block) {
        let at = block.len() - TAIL_LEN;
        let _ = put(block, at, &sum.to_be_bytes());
    }
}
