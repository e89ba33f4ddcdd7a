//! The journal superblock: log block 0, with the format and the start of the log.

use core::fmt;

use bitflags::bitflags;
use zerocopy::byteorder::{BE, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{BlockHeader, BlockType, MAGIC, TAIL_LEN};
use crate::bytes::assert_layout;
use crate::error::{OnDiskError, Result, corrupt};
use crate::ext4::checksum::ext4_crc32c;

bitflags! {
    /// `s_feature_compat`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CompatFlags: u32 {
        /// Checksum of the transaction in its commit block (crc32; v1).
        const CHECKSUM = 1;
    }

    /// `s_feature_incompat`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct IncompatFlags: u32 {
        /// The log has revoke blocks.
        const REVOKE = 1;
        /// Tags and revoke entries carry 64-bit block numbers.
        const BIT64 = 2;
        /// The commit block may reach the disk before its transaction.
        const ASYNC_COMMIT = 4;
        /// Checksums, version 2.
        const CSUM_V2 = 8;
        /// Checksums, version 3.
        const CSUM_V3 = 0x10;
        /// The end of the log is a fast-commit area.
        const FAST_COMMIT = 0x20;
        /// Not jbd2's: a StetFS log lies behind the superblock ([`crate::stet`]). Software that
        /// does not know it must not use the volume.
        const STET = 0x4000_0000;
    }
}

impl fmt::Display for IncompatFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            (IncompatFlags::REVOKE, "revoke"),
            (IncompatFlags::BIT64, "64bit"),
            (IncompatFlags::ASYNC_COMMIT, "async_commit"),
            (IncompatFlags::CSUM_V2, "checksum_v2"),
            (IncompatFlags::CSUM_V3, "checksum_v3"),
            (IncompatFlags::FAST_COMMIT, "fast_commit"),
            (IncompatFlags::STET, "stetfs_log"),
        ];
        let mut names: Vec<String> = known
            .iter()
            .filter(|(flag, _)| self.contains(*flag))
            .map(|(_, name)| (*name).to_owned())
            .collect();
        let unknown = self.bits() & !IncompatFlags::all().bits();
        names.extend(
            (0..32)
                .filter(|bit| unknown >> bit & 1 == 1)
                .map(|bit| format!("FEATURE_I{bit}")),
        );
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(" "))
    }
}

/// Name of the structure in errors.
const WHAT: &str = "journal superblock";

/// `JBD2_CRC32C_CHKSUM`.
pub const CHECKSUM_CRC32C: u8 = 4;

/// Fast-commit blocks when the superblock does not say (`JBD2_DEFAULT_FAST_COMMIT_BLOCKS`).
pub const DEFAULT_FC_BLOCKS: u32 = 256;

/// Smallest journal, in blocks (`JBD2_MIN_JOURNAL_BLOCKS`).
pub const MIN_BLOCKS: u32 = 1024;

/// `journal_superblock_t`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct JournalSuperblock {
    /// Magic, version 1 or 2; the sequence is unused.
    pub header: BlockHeader,
    /// Bytes in a log block.
    pub s_blocksize: U32<BE>,
    /// Log blocks in all, this one and the fast-commit area included.
    pub s_maxlen: U32<BE>,
    /// First log block of the ring.
    pub s_first: U32<BE>,
    /// Tid of the oldest transaction in the log (of the next one, if the log is empty).
    pub s_sequence: U32<BE>,
    /// Log block where it starts; 0 when the log is empty.
    pub s_start: U32<BE>,
    /// Error of the last mount.
    pub s_errno: U32<BE>,
    /// See [`CompatFlags`].
    pub s_feature_compat: U32<BE>,
    /// See [`IncompatFlags`].
    pub s_feature_incompat: U32<BE>,
    /// None are defined.
    pub s_feature_ro_compat: U32<BE>,
    /// UUID of the journal; seed of its checksums.
    pub s_uuid: [u8; 16],
    /// File systems that share the journal.
    pub s_nr_users: U32<BE>,
    /// Unused.
    pub s_dynsuper: U32<BE>,
    /// Unused.
    pub s_max_transaction: U32<BE>,
    /// Unused.
    pub s_max_trans_data: U32<BE>,
    /// [`CHECKSUM_CRC32C`] with checksum v2 and v3.
    pub s_checksum_type: u8,
    /// Zero.
    pub s_padding2: [u8; 3],
    /// Blocks of the fast-commit area; 0 means [`DEFAULT_FC_BLOCKS`].
    pub s_num_fc_blks: U32<BE>,
    /// Log block at which the log continues after a clean unmount (newer kernels).
    pub s_head: U32<BE>,
    /// Zero.
    pub s_padding: [U32<BE>; 40],
    /// crc32c of the superblock with this field zero.
    pub s_checksum: U32<BE>,
    /// UUIDs of the file systems that share the journal.
    pub s_users: [[u8; 16]; 48],
}

assert_layout!(JournalSuperblock, 1024, {
    header: 0, s_blocksize: 12, s_maxlen: 16, s_first: 20, s_sequence: 24, s_start: 28, s_errno: 32,
    s_feature_compat: 36, s_feature_incompat: 40, s_feature_ro_compat: 44, s_uuid: 48, s_nr_users: 64,
    s_dynsuper: 68, s_max_transaction: 72, s_max_trans_data: 76, s_checksum_type: 80, s_num_fc_blks: 84,
    s_head: 88, s_padding: 92, s_checksum: 252, s_users: 256,
});

/// The parameters of the rest of a log's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes in a log block.
    pub block_size: u32,
    /// Block numbers of tags and revoke entries are 64 bits wide.
    pub wide: bool,
    /// The kind of checksums in tags and tails, which also sets the format of tags.
    pub csum: Csum,
    /// Seed of all checksums: crc32c of the journal's UUID.
    pub seed: u32,
}

impl Config {
    /// Bytes that the checksum takes at the end of a descriptor or revoke block.
    #[must_use]
    pub fn tail_len(&self) -> usize {
        if self.csum.in_blocks() { TAIL_LEN } else { 0 }
    }
}

/// The kinds of checksums of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Csum {
    /// None.
    None,
    /// Version 1: one in the commit block, over the transaction's descriptors and images.
    V1,
    /// Version 2: in every block of the log; 16 bits in each tag.
    V2,
    /// Version 3: in every block of the log; 32 bits in each tag.
    V3,
}

impl Csum {
    /// Whether descriptors, images, revoke blocks and commit blocks have checksums of their own.
    #[must_use]
    pub fn in_blocks(self) -> bool {
        matches!(self, Csum::V2 | Csum::V3)
    }
}

impl JournalSuperblock {
    /// The superblock of an empty journal of `blocks` log blocks of `block_size` bytes, of which
    /// the last `fc_blocks` are for fast commits; with no features, which users add.
    #[must_use]
    pub fn empty(block_size: u32, blocks: u32, fc_blocks: u32, uuid: [u8; 16]) -> Self {
        let mut sb = JournalSuperblock::new_zeroed();
        sb.header = BlockHeader {
            h_magic: MAGIC.into(),
            h_blocktype: (BlockType::SuperblockV2 as u32).into(),
            h_sequence: 0.into(),
        };
        sb.s_blocksize = block_size.into();
        sb.s_maxlen = blocks.into();
        sb.s_first = 1.into();
        sb.s_sequence = 1.into();
        sb.s_uuid = uuid;
        sb.s_nr_users = 1.into();
        sb.s_num_fc_blks = fc_blocks.into();
        sb
    }

    /// Decodes and checks the superblock.
    ///
    /// # Errors
    /// `Corrupt` if it is not a superblock of a journal of `log_blocks` blocks of `block_size`
    /// bytes, or its checksum is wrong; `Unsupported` for unknown features.
    pub fn decode(bytes: &[u8], block_size: u32, log_blocks: u64) -> Result<JournalSuperblock> {
        let (sb, _) = JournalSuperblock::read_from_prefix(bytes)
            .map_err(|_| crate::bytes::too_short(WHAT, bytes.len(), 1024))?;
        if sb.header.h_magic.get() != MAGIC {
            return Err(corrupt!(WHAT, "magic {:#x}", sb.header.h_magic.get()));
        }
        match BlockType::from_u32(sb.header.h_blocktype.get()) {
            Some(BlockType::SuperblockV1 | BlockType::SuperblockV2) => {}
            other => return Err(corrupt!(WHAT, "block type {other:?}")),
        }
        if sb.s_blocksize.get() != block_size {
            return Err(corrupt!(
                WHAT,
                "block size {} on a volume of {block_size}",
                sb.s_blocksize.get()
            ));
        }
        sb.check_features()?;
        sb.check_checksum()?;
        sb.check_places(log_blocks)?;
        Ok(sb)
    }

    fn check_features(&self) -> Result<()> {
        let unknown = self.incompat() - IncompatFlags::all();
        if !unknown.is_empty() {
            return Err(OnDiskError::Unsupported {
                feature: format!("journal feature {unknown}"),
            });
        }
        if self.is_v2() && self.s_feature_ro_compat.get() != 0 {
            return Err(OnDiskError::Unsupported {
                feature: format!(
                    "journal features {:#x} (read-only compatible)",
                    self.s_feature_ro_compat.get()
                ),
            });
        }
        let versions = [
            self.compat().contains(CompatFlags::CHECKSUM),
            self.incompat().contains(IncompatFlags::CSUM_V2),
            self.incompat().contains(IncompatFlags::CSUM_V3),
        ];
        if versions.iter().filter(|has| **has).count() > 1 {
            return Err(corrupt!(WHAT, "several versions of checksums at once"));
        }
        Ok(())
    }

    fn check_checksum(&self) -> Result<()> {
        if self.has_checksum() {
            if self.s_checksum_type != CHECKSUM_CRC32C {
                return Err(OnDiskError::Unsupported {
                    feature: format!("journal checksum type {}", self.s_checksum_type),
                });
            }
            if self.s_checksum.get() != self.checksum() {
                return Err(corrupt!(
                    WHAT,
                    "checksum {:#x}, computed {:#x}",
                    self.s_checksum.get(),
                    self.checksum()
                ));
            }
        }
        Ok(())
    }

    /// Checks the ring, and the start of the log in it.
    fn check_places(&self, log_blocks: u64) -> Result<()> {
        let maxlen = u64::from(self.s_maxlen.get());
        if maxlen > log_blocks {
            return Err(corrupt!(
                WHAT,
                "{maxlen} blocks in a journal of {log_blocks}"
            ));
        }
        if self.fc_blocks() > 0 && self.ring_end() < MIN_BLOCKS {
            return Err(corrupt!(
                WHAT,
                "{} blocks for fast commits in a journal of {maxlen}",
                self.fc_blocks()
            ));
        }
        let (first, end) = (u64::from(self.s_first.get()), u64::from(self.ring_end()));
        // A smaller ring cannot hold one transaction; the kernel requires 1024 blocks in all.
        if first == 0 || end < first + 16 {
            return Err(corrupt!(WHAT, "log blocks {first} to {end}"));
        }
        let start = u64::from(self.s_start.get());
        if start != 0 && !(first..end).contains(&start) {
            return Err(corrupt!(
                WHAT,
                "log starts at {start}, outside {first} to {end}"
            ));
        }
        Ok(())
    }

    /// Whether it is version 2 (version 1 has no features).
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.header.h_blocktype.get() == BlockType::SuperblockV2 as u32
    }

    /// Incompatible features; empty in version 1.
    #[must_use]
    pub fn incompat(&self) -> IncompatFlags {
        IncompatFlags::from_bits_retain(if self.is_v2() {
            self.s_feature_incompat.get()
        } else {
            0
        })
    }

    /// Compatible features; empty in version 1.
    #[must_use]
    pub fn compat(&self) -> CompatFlags {
        CompatFlags::from_bits_retain(if self.is_v2() {
            self.s_feature_compat.get()
        } else {
            0
        })
    }

    /// Volumes that share the journal; 0 in version 1.
    #[must_use]
    pub fn users(&self) -> u32 {
        if self.is_v2() {
            self.s_nr_users.get()
        } else {
            0
        }
    }

    fn has_checksum(&self) -> bool {
        self.incompat()
            .intersects(IncompatFlags::CSUM_V2 | IncompatFlags::CSUM_V3)
    }

    /// One past the last log block of the ring: the fast-commit area lies behind it.
    #[must_use]
    pub fn ring_end(&self) -> u32 {
        self.s_maxlen.get().saturating_sub(self.fc_blocks())
    }

    /// The log blocks of fast commits: the first one behind the ring is never used.
    #[must_use]
    pub fn fc_area(&self) -> core::ops::Range<u32> {
        let end = self.s_maxlen.get();
        match self.fc_blocks() {
            0 => end..end,
            _ => self.ring_end().saturating_add(1)..end,
        }
    }

    /// Number of blocks reserved for fast commits.
    #[must_use]
    pub fn fc_blocks(&self) -> u32 {
        if !self.incompat().contains(IncompatFlags::FAST_COMMIT) {
            return 0;
        }
        match self.s_num_fc_blks.get() {
            0 => DEFAULT_FC_BLOCKS,
            n => n,
        }
    }

    /// The features' names.
    #[must_use]
    pub fn feature_names(&self) -> String {
        match (self.compat(), self.incompat()) {
            (compat, incompat) if !compat.contains(CompatFlags::CHECKSUM) => incompat.to_string(),
            (_, incompat) if incompat.is_empty() => "checksum".into(),
            (_, incompat) => format!("checksum {incompat}"),
        }
    }

    /// Sets the incompatible features and the fields that depend on them.
    pub fn set_incompat(&mut self, flags: IncompatFlags) {
        self.s_feature_incompat = flags.bits().into();
        self.s_checksum_type = if self.has_checksum() {
            CHECKSUM_CRC32C
        } else {
            0
        };
    }

    /// The parameters for reading and writing the log.
    #[must_use]
    pub fn config(&self) -> Config {
        let incompat = self.incompat();
        Config {
            block_size: self.s_blocksize.get(),
            wide: incompat.contains(IncompatFlags::BIT64),
            csum: if incompat.contains(IncompatFlags::CSUM_V3) {
                Csum::V3
            } else if incompat.contains(IncompatFlags::CSUM_V2) {
                Csum::V2
            } else if self.compat().contains(CompatFlags::CHECKSUM) {
                Csum::V1
            } else {
                Csum::None
            },
            seed: ext4_crc32c(!0, &self.s_uuid),
        }
    }

    fn checksum(&self) -> u32 {
        let mut copy = *self;
        copy.s_checksum = 0.into();
        ext4_crc32c(!0, copy.as_bytes())
    }

    /// Updates the checksum, if the journal has checksums.
    pub fn update_checksum(&mut self) {
        self.s_checksum = if self.has_checksum() {
            self.checksum().into()
        } else {
            0.into()
        };
    }
}

/// Whether tid `a` comes after `b`, across wrap-around.
#[must_use]
pub fn tid_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}
