//! Block group descriptors ("Block Group Descriptors" in the ext4 documentation).

use super::checksum::{ChecksumMode, crc16, crc32c_with_hole, ext4_crc32c};
use crate::bytes::{assert_layout, le16, prefix_mut, put, too_short};
use crate::error::Result;
use crate::num::{high16, high32, low16, low32};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size in bytes of a descriptor without the 64bit feature.
pub const MIN_DESC_SIZE: usize = 32;
/// Size in bytes from which a descriptor has the high halves.
pub const DESC_SIZE_64BIT: usize = 64;
const CHECKSUM_OFFSET: usize = 0x1e;

bitflags! {
    /// `bg_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table are not initialised: no inode is in use.
        const INODE_UNINIT = 0x1;
        /// The block bitmap is not initialised: only the group's own metadata is in use.
        const BLOCK_UNINIT = 0x2;
        /// The inode table has been zeroed.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

/// `struct ext4_group_desc`, high halves included.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct RawGroupDesc {
    block_bitmap_lo: U32,
    inode_bitmap_lo: U32,
    inode_table_lo: U32,
    free_blocks_count_lo: U16,
    free_inodes_count_lo: U16,
    used_dirs_count_lo: U16,
    flags: U16,
    exclude_bitmap_lo: U32,
    block_bitmap_csum_lo: U16,
    inode_bitmap_csum_lo: U16,
    itable_unused_lo: U16,
    checksum: U16,
    block_bitmap_hi: U32,
    inode_bitmap_hi: U32,
    inode_table_hi: U32,
    free_blocks_count_hi: U16,
    free_inodes_count_hi: U16,
    used_dirs_count_hi: U16,
    itable_unused_hi: U16,
    exclude_bitmap_hi: U32,
    block_bitmap_csum_hi: U16,
    inode_bitmap_csum_hi: U16,
    reserved: U32,
}

assert_layout!(RawGroupDesc, 64, {
    block_bitmap_lo: 0x0, inode_bitmap_lo: 0x4, inode_table_lo: 0x8, free_blocks_count_lo: 0xC,
    free_inodes_count_lo: 0xE, used_dirs_count_lo: 0x10, flags: 0x12, exclude_bitmap_lo: 0x14,
    block_bitmap_csum_lo: 0x18, inode_bitmap_csum_lo: 0x1A, itable_unused_lo: 0x1C,
    checksum: CHECKSUM_OFFSET, block_bitmap_hi: 0x20, inode_bitmap_hi: 0x24, inode_table_hi: 0x28,
    free_blocks_count_hi: 0x2C, free_inodes_count_hi: 0x2E, used_dirs_count_hi: 0x30,
    itable_unused_hi: 0x32, exclude_bitmap_hi: 0x34, block_bitmap_csum_hi: 0x38,
    inode_bitmap_csum_hi: 0x3A, reserved: 0x3C,
});

/// A decoded descriptor. It records whether it has high halves; without them the setters store only
/// the low half (callers keep 32-bit volumes below 2³² blocks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupDesc {
    raw: RawGroupDesc,
    wide: bool,
}

/// Getter and setter of a value split in two fields.
macro_rules! split {
    ($(#[$doc:meta])* $get:ident, $set:ident, $lo:ident, $hi:ident, $low:ident, $high:ident, $full:ty, $bits:literal) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> $full {
            let hi = if self.wide { <$full>::from(self.raw.$hi.get()) << $bits } else { 0 };
            <$full>::from(self.raw.$lo.get()) | hi
        }
        #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        pub fn $set(&mut self, v: $full) {
            self.raw.$lo.set($low(v));
            if self.wide {
                self.raw.$hi.set($high(v));
            }
        }
    };
}

impl GroupDesc {
    /// A descriptor of zeros for a volume whose descriptors are `desc_size` bytes.
    #[must_use]
    pub fn zeroed(desc_size: usize) -> Self {
        GroupDesc {
            raw: RawGroupDesc::new_zeroed(),
            wide: desc_size >= DESC_SIZE_64BIT,
        }
    }

    /// Decodes one descriptor; `bytes` has exactly the volume's descriptor size (32, or 64 and
    /// more). Any bytes decode:
    /// [`Geometry::check_group_desc`](super::superblock::Geometry::check_group_desc) checks whether
    /// the numbers lie inside the volume.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Self::zeroed(bytes.len());
        let used = if d.wide {
            DESC_SIZE_64BIT
        } else {
            MIN_DESC_SIZE
        };
        let from = crate::bytes::prefix("group descriptor", bytes, used)?;
        put(d.raw.as_mut_bytes(), 0, from);
        Ok(d)
    }

    /// Writes the descriptor's known fields to `bytes` (the volume's descriptor size); later bytes
    /// stay.
    pub fn encode(&self, bytes: &mut [u8]) -> Result<()> {
        let used = if self.wide {
            DESC_SIZE_64BIT
        } else {
            MIN_DESC_SIZE
        };
        let to = prefix_mut("group descriptor", bytes, used)?;
        to.copy_from_slice(self.raw.as_bytes().get(..used).unwrap_or_default());
        Ok(())
    }

    /// [`encode`](Self::encode), then the checksum over all of `bytes`, which is also stored in
    /// `self`.
    pub fn encode_with_checksum(
        &mut self,
        bytes: &mut [u8],
        group: u32,
        mode: &ChecksumMode,
    ) -> Result<()> {
        self.encode(bytes)?;
        update_checksum(bytes, group, mode)?;
        self.raw
            .checksum
            .set(le16(bytes, CHECKSUM_OFFSET).unwrap_or(0));
        Ok(())
    }

    split!(/// Block number of the block bitmap.
        block_bitmap, set_block_bitmap, block_bitmap_lo, block_bitmap_hi, low32, high32, u64, 32);
    split!(/// Block number of the inode bitmap.
        inode_bitmap, set_inode_bitmap, inode_bitmap_lo, inode_bitmap_hi, low32, high32, u64, 32);
    split!(/// First block of the inode table.
        inode_table, set_inode_table, inode_table_lo, inode_table_hi, low32, high32, u64, 32);
    split!(/// Block number of the snapshot exclusion bitmap (unused by Linux).
        exclude_bitmap, set_exclude_bitmap, exclude_bitmap_lo, exclude_bitmap_hi, low32, high32, u64, 32);
    split!(/// Free clusters in the group (`bg_free_blocks_count`).
        free_clusters, set_free_clusters, free_blocks_count_lo, free_blocks_count_hi, low16, high16, u32, 16);
    split!(/// Free inodes in the group.
        free_inodes, set_free_inodes, free_inodes_count_lo, free_inodes_count_hi, low16, high16, u32, 16);
    split!(/// Directories among the group's inodes.
        used_dirs, set_used_dirs, used_dirs_count_lo, used_dirs_count_hi, low16, high16, u32, 16);
    split!(/// Inodes at the end of the table that were never used.
        itable_unused, set_itable_unused, itable_unused_lo, itable_unused_hi, low16, high16, u32, 16);
    split!(/// Stored block bitmap checksum; only the low 16 bits in a 32-byte descriptor.
        block_bitmap_csum, set_block_bitmap_csum, block_bitmap_csum_lo, block_bitmap_csum_hi, low16, high16, u32, 16);
    split!(/// Stored inode bitmap checksum; only the low 16 bits in a 32-byte descriptor.
        inode_bitmap_csum, set_inode_bitmap_csum, inode_bitmap_csum_lo, inode_bitmap_csum_hi, low16, high16, u32, 16);

    /// `bg_flags`.
    #[must_use]
    pub fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(self.raw.flags.get())
    }

    /// Sets [`flags`](Self::flags).
    pub fn set_flags(&mut self, flags: GroupFlags) {
        self.raw.flags.set(flags.bits());
    }

    /// `bg_checksum` as decoded.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.raw.checksum.get()
    }

    /// Whether the full bitmap checksum `csum` matches that of the block bitmap in this descriptor.
    #[must_use]
    pub fn block_bitmap_csum_matches(&self, csum: u32) -> bool {
        self.block_bitmap_csum() == self.stored_part(csum)
    }

    /// Whether the full bitmap checksum `csum` matches that of the inode bitmap in this descriptor.
    #[must_use]
    pub fn inode_bitmap_csum_matches(&self, csum: u32) -> bool {
        self.inode_bitmap_csum() == self.stored_part(csum)
    }

    fn stored_part(&self, csum: u32) -> u32 {
        if self.wide { csum } else { csum & 0xffff }
    }
}

/// The correct `bg_checksum` of descriptor number `group` in `bytes` (the volume's whole descriptor
/// size); `None` when the volume has no descriptor checksums.
#[must_use]
pub fn compute_checksum(bytes: &[u8], group: u32, mode: &ChecksumMode) -> Option<u16> {
    match mode {
        ChecksumMode::None => None,
        ChecksumMode::MetadataCsum { seed } => {
            let s = ext4_crc32c(*seed, &group.to_le_bytes());
            Some(low16(crc32c_with_hole(s, bytes, CHECKSUM_OFFSET, 2)))
        }
        ChecksumMode::GdtCsum { uuid } => {
            // Unlike metadata_csum the field is left out, not counted as zero.
            let mut crc = crc16(!0, uuid);
            crc = crc16(crc, &group.to_le_bytes());
            crc = crc16(crc, bytes.get(..CHECKSUM_OFFSET).unwrap_or(bytes));
            Some(crc16(
                crc,
                bytes.get(CHECKSUM_OFFSET + 2..).unwrap_or_default(),
            ))
        }
    }
}

/// Whether the descriptor's checksum is valid (always, if the volume has none).
#[must_use]
pub fn verify_checksum(bytes: &[u8], group: u32, mode: &ChecksumMode) -> bool {
    compute_checksum(bytes, group, mode).is_none_or(|c| le16(bytes, CHECKSUM_OFFSET) == Some(c))
}

/// Stores the checksum, if the volume has checksums.
pub fn update_checksum(bytes: &mut [u8], group: u32, mode: &ChecksumMode) -> Result<()> {
    if let Some(c) = compute_checksum(bytes, group, mode) {
        let have = bytes.len();
        put(bytes, CHECKSUM_OFFSET, &c.to_le_bytes())
            .ok_or_else(|| too_short("group descriptor", have, MIN_DESC_SIZE))?;
    }
    Ok(())
}
