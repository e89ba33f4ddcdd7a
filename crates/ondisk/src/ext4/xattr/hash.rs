//! Hashes of attributes, and the checksum of a block of them.

use super::attr::{ALIGN, Attr, Value, WHAT, no_room};
use crate::bytes::{le32, put};
use crate::error::{Result, corrupt};
use crate::ext4::checksum::{crc32c_with_hole, ext4_crc32c};
use crate::num::sign_extended;

/// Offset of `h_checksum`.
const CHECKSUM_AT: usize = 16;

/// `e_hash` of an attribute in a block, for [`block_hash`].
pub(super) fn hash_of(attr: &Attr<'_>) -> u32 {
    match attr.value {
        Value::Bytes(v) => entry_hash(attr.name, v),
        Value::Inode { hash, .. } => hash,
    }
}

/// `e_hash` of an attribute in a block. Bytes of the name count as unsigned, as in Linux since 6.2.
/// Before, they had the machine's `char`, so a stored hash of a name that is not ASCII may differ.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let name = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ u32::from(b));
    value.chunks(ALIGN).fold(name, |h, piece| {
        let word = piece.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b));
        h.rotate_left(16) ^ word
    })
}

/// The checksum of a value that has an inode of its own; that inode stores it as
/// [`value_hash`](crate::ext4::inode::InodeView::value_hash).
#[must_use]
pub fn value_hash(value: &[u8], csum_seed: u32) -> u32 {
    ext4_crc32c(csum_seed, value)
}

/// `e_hash` of an attribute whose value has an inode of its own; the same in a block and in an
/// inode.
#[must_use]
pub fn value_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// Whether `e_hash` of such an attribute is valid. Linux before 6.2 may have read the bytes of the
/// name as signed.
#[must_use]
pub fn is_value_entry_hash(hash: u32, name: &[u8], value_hash: u32) -> bool {
    let signed = name
        .iter()
        .fold(0u32, |h, &b| h.rotate_left(5) ^ sign_extended(b));
    hash == value_entry_hash(name, value_hash) || hash == signed.rotate_left(16) ^ value_hash
}

/// `h_hash` of a block whose entries have these hashes; 0 if one has none.
pub(super) fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    entries
        .into_iter()
        .try_fold(0u32, |h, e| (e != 0).then_some(h.rotate_left(16) ^ e))
        .unwrap_or(0)
}

/// The checksum of the attribute block at `block_nr`. `csum_seed` is the volume's, not an inode's:
/// the block may belong to many inodes.
#[must_use]
pub fn block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> u32 {
    crc32c_with_hole(
        ext4_crc32c(csum_seed, &block_nr.to_le_bytes()),
        block,
        CHECKSUM_AT,
        4,
    )
}

/// Verifies `h_checksum`.
pub fn verify_block_checksum(block: &[u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let stored =
        le32(block, CHECKSUM_AT).ok_or_else(|| corrupt!(WHAT, "block of {} bytes", block.len()))?;
    let computed = block_checksum(block, csum_seed, block_nr);
    if stored != computed {
        return Err(corrupt!(
            WHAT,
            "block checksum {stored:#010x}, computed {computed:#010x}"
        ));
    }
    Ok(())
}

/// Stores `h_checksum`.
pub fn update_block_checksum(block: &mut [u8], csum_seed: u32, block_nr: u64) -> Result<()> {
    let sum = block_checksum(block, csum_seed, block_nr);
    put(block, CHECKSUM_AT, &sum.to_le_bytes()).ok_or_else(no_room)
}
