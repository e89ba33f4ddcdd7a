//! Extent trees ("Extent Tree" in the ext4 documentation).
//!
//! A node is a header and sorted 12-byte entries: in a leaf (depth 0) extents, above it pointers to
//! lower nodes. The root fills the 60 bytes of `i_block`; every other node fills a block, whose
//! checksum follows the last entry that would fit. [`Node`] works on any byte container.
//! [`Node::new`] makes access safe; [`Node::check`] verifies the content. A child's first entry
//! starts at the logical block in its parent's entry: Linux refuses other leaves, so writers keep
//! to it. [`check`](Node::check) only requires that the child stays in its range.

mod node;
#[cfg(test)]
mod tests;

pub use node::{Expect, Node, NodeMut, NodeRef};

use crate::bytes::{assert_layout, le32, put};
use crate::error::{Result, corrupt};
use crate::ext4::checksum::ext4_crc32c;
use crate::num::{count16, high32, low16, low32};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const MAGIC: u16 = 0xF30A;
/// Maximum depth; a deeper tree would map more blocks than a file can have.
pub const MAX_DEPTH: u16 = 5;
/// Longest initialised extent, blocks.
pub const MAX_LEN: u32 = 32768;
/// Longest unwritten extent, blocks.
pub const MAX_UNWRITTEN_LEN: u32 = 32767;
/// End of all logical blocks: block `u32::MAX` itself is never mapped.
pub const LOGICAL_END: u64 = u32::MAX as u64;
/// Size of a header and of an entry of either kind, bytes.
pub const ENTRY_LEN: usize = 12;
/// Entries that fit in `i_block`.
pub const ROOT_ENTRIES: u16 = max_entries(60);

const WHAT: &str = "extent node";

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    entries: U16,
    max: U16,
    depth: U16,
    generation: U32,
}
assert_layout!(RawHeader, ENTRY_LEN, { magic: 0, entries: 2, max: 4, depth: 6, generation: 8 });

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawIndex {
    block: U32,
    leaf_lo: U32,
    leaf_hi: U16,
    unused: U16,
}
assert_layout!(RawIndex, ENTRY_LEN, { block: 0, leaf_lo: 4, leaf_hi: 8, unused: 10 });

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawExtent {
    block: U32,
    len: U16,
    start_hi: U16,
    start_lo: U32,
}
assert_layout!(RawExtent, ENTRY_LEN, { block: 0, len: 4, start_hi: 6, start_lo: 8 });

/// An entry of a leaf: consecutive logical blocks on consecutive blocks of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub block: u32,
    /// Length in blocks, 1..=[`MAX_LEN`], or [`MAX_UNWRITTEN_LEN`] when unwritten.
    pub len: u32,
    /// First block on the volume, 48 bits.
    pub start: u64,
    /// Whether it is allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// End of its logical blocks (exclusive).
    #[must_use]
    pub fn logical_end(&self) -> u64 {
        u64::from(self.block) + u64::from(self.len)
    }

    /// Its last `most` blocks, or all of it.
    #[must_use]
    pub fn last(&self, most: u32) -> Extent {
        let before = self.len.saturating_sub(most);
        Extent {
            block: self.block + before,
            len: self.len - before,
            start: self.start + u64::from(before),
            ..*self
        }
    }

    /// Whether `next` continues it logically, physically and in kind, so that both make one extent
    /// if the length allows.
    #[must_use]
    pub fn is_continued_by(&self, next: &Extent) -> bool {
        self.logical_end() == u64::from(next.block)
            && self.start + u64::from(self.len) == next.start
            && self.unwritten == next.unwritten
    }

    /// Longest extent of its kind, blocks.
    #[must_use]
    pub fn max_len(&self) -> u32 {
        if self.unwritten {
            MAX_UNWRITTEN_LEN
        } else {
            MAX_LEN
        }
    }

    /// Decodes a leaf's entry (12 bytes).
    #[must_use]
    pub fn from_entry(entry: &[u8]) -> Option<Extent> {
        let raw = RawExtent::read_from_bytes(entry).ok()?;
        Some(Extent::decode(&raw))
    }

    /// `ee_len` above 32768 means unwritten, with 32768 added. So a length of exactly 32768 is an
    /// initialised extent.
    fn decode(raw: &RawExtent) -> Self {
        let len = u32::from(raw.len.get());
        let unwritten = len > MAX_LEN;
        Extent {
            block: raw.block.get(),
            len: if unwritten { len - MAX_LEN } else { len },
            start: u64::from(raw.start_lo.get()) | u64::from(raw.start_hi.get()) << 32,
            unwritten,
        }
    }

    fn encode(&self) -> Result<RawExtent> {
        if self.len == 0
            || self.len > self.max_len()
            || self.start >> 48 != 0
            || self.logical_end() > LOGICAL_END
        {
            return Err(corrupt!("extent", "{self:?} cannot be stored"));
        }
        let len = self.len + if self.unwritten { MAX_LEN } else { 0 };
        Ok(RawExtent {
            block: self.block.into(),
            len: low16(len).into(),
            start_hi: low16(high32(self.start)).into(),
            start_lo: low32(self.start).into(),
        })
    }
}

/// An entry above the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// First logical block that the child covers; it covers up to the next entry's.
    pub block: u32,
    /// Block of the child on the volume, 48 bits.
    pub child: u64,
}

impl Index {
    fn decode(raw: &RawIndex) -> Self {
        Index {
            block: raw.block.get(),
            child: u64::from(raw.leaf_lo.get()) | u64::from(raw.leaf_hi.get()) << 32,
        }
    }

    fn encode(&self) -> Result<RawIndex> {
        if self.child >> 48 != 0 {
            return Err(corrupt!("extent index", "{self:?} cannot be stored"));
        }
        Ok(RawIndex {
            block: self.block.into(),
            leaf_lo: low32(self.child).into(),
            leaf_hi: low16(high32(self.child)).into(),
            unused: 0.into(),
        })
    }
}

/// Entries that fit in a node of `len` bytes: 60 for the root, else the block size.
#[must_use]
pub const fn max_entries(len: usize) -> u16 {
    // The largest block, 64 KiB, has 5460.
    count16(len.saturating_sub(ENTRY_LEN) / ENTRY_LEN)
}

/// Offset of the checksum in a node block, after room for `eh_max` entries; `None` if it does not
/// lie in the block.
fn tail_offset(block: &[u8]) -> Option<usize> {
    let max = usize::from(crate::bytes::le16(block, 4)?);
    let off = ENTRY_LEN + max * ENTRY_LEN;
    (off + 4 <= block.len()).then_some(off)
}

/// The correct `et_checksum` of a node block. `seed` is the inode's
/// ([`csum_seed`](super::inode::InodeView::csum_seed)). The root in the inode has no checksum.
#[must_use]
pub fn block_checksum(seed: u32, block: &[u8]) -> Option<u32> {
    Some(ext4_crc32c(seed, block.get(..tail_offset(block)?)?))
}

/// Whether a node block's checksum is valid; always if `seed` is `None` (no `metadata_csum`).
#[must_use]
pub fn verify_block_checksum(seed: Option<u32>, block: &[u8]) -> bool {
    let Some(seed) = seed else { return true };
    tail_offset(block)
        .and_then(|off| le32(block, off))
        .is_some_and(|c| Some(c) == block_checksum(seed, block))
}

/// Stores the checksum in a node block, if the volume has checksums.
pub fn update_block_checksum(seed: Option<u32>, block: &mut [u8]) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let csum = block_checksum(seed, block).zip(tail_offset(block));
    csum.and_then(|(c, off)| put(block, off, &c.to_le_bytes()))
        .ok_or_else(|| corrupt!(WHAT, "no room for the checksum in {} bytes", block.len()))
}
