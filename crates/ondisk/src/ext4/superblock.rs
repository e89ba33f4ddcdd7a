//! The superblock ("The Super Block" in the ext4 documentation).

mod flags;
mod geometry;
mod raw;
mod steady;
#[cfg(test)]
mod tests;

pub use flags::{DefaultMountOpts, State, SuperFlags};
pub use geometry::{Geometry, group_has_super};
pub use raw::{SUPERBLOCK_SIZE, Superblock};

use super::checksum::{ChecksumMode, ext4_crc32c};
use super::features::{Compat, Features, Incompat, RoCompat};
use super::hash::HashVersion;
use crate::bytes::{prefix, prefix_mut};
use crate::error::{Result, corrupt};
use crate::num::{high32, low32};
use zerocopy::{FromBytes, IntoBytes};

/// Byte offset of the primary superblock on the volume, whatever the block size.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;
/// `s_rev_level` of volumes with variable inode sizes and features.
pub const DYNAMIC_REV: u32 = 1;
/// `s_checksum_type` for CRC-32C.
pub const CHECKSUM_TYPE_CRC32C: u8 = 1;
/// `s_jnl_backup_type` when `s_jnl_blocks` holds the journal inode.
pub const JNL_BACKUP_BLOCKS: u8 = 1;
const CHECKSUM_OFFSET: usize = 0x3FC;

/// Inode of the bad block list.
pub const BAD_INO: u32 = 1;
/// Inode of the root directory.
pub const ROOT_INO: u32 = 2;
/// Inode of user quota.
pub const USR_QUOTA_INO: u32 = 3;
/// Inode of group quota.
pub const GRP_QUOTA_INO: u32 = 4;
/// Inode of the boot loader.
pub const BOOT_LOADER_INO: u32 = 5;
/// Inode with the reserved descriptor blocks.
pub const RESIZE_INO: u32 = 7;
/// Inode of the journal.
pub const JOURNAL_INO: u32 = 8;
/// First inode that is not reserved, in revision 0.
pub const GOOD_OLD_FIRST_INO: u32 = 11;

/// `s_errors`: the reaction to a detected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum ErrorPolicy {
    /// Continue.
    Continue = 1,
    /// Remount read-only.
    RemountRo = 2,
    /// Panic (StetFS: stop serving).
    Panic = 3,
}

/// Getter and setter of a 64-bit count split in two fields.
macro_rules! split {
    ($(#[$doc:meta])* $get:ident, $set:ident, $lo:ident, $hi:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> u64 {
            // The high halves are valid only on 64bit volumes.
            let hi = if self.incompat().contains(Incompat::BIT64) { self.$hi.get() } else { 0 };
            u64::from(self.$lo.get()) | (u64::from(hi) << 32)
        }
        #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        pub fn $set(&mut self, v: u64) {
            self.$lo.set(low32(v));
            if self.incompat().contains(Incompat::BIT64) {
                self.$hi.set(high32(v));
            }
        }
    };
}

/// Getter and setter of a time split in 32 low and 8 high bits.
macro_rules! time {
    ($(#[$doc:meta])* $get:ident, $set:ident, $lo:ident, $hi:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> u64 {
            super::time::superblock_time(self.$lo.get(), self.$hi)
        }
        #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), "), cut to 40 bits.")]
        pub fn $set(&mut self, seconds: u64) {
            self.$lo.set(low32(seconds));
            [_, _, _, _, self.$hi, ..] = seconds.to_le_bytes();
        }
    };
}

impl Superblock {
    /// Decodes with no validation but the length, for tools that show or repair superblocks.
    pub fn decode_unchecked(bytes: &[u8]) -> Result<Self> {
        Superblock::read_from_bytes(prefix("superblock", bytes, SUPERBLOCK_SIZE)?)
            .map_err(|_| corrupt!("superblock", "{} bytes", bytes.len()))
    }

    /// Writes the 1024 bytes unchanged; call [`update_checksum`](Self::update_checksum) before.
    pub fn encode(&self, bytes: &mut [u8]) -> Result<()> {
        prefix_mut("superblock", bytes, SUPERBLOCK_SIZE)?.copy_from_slice(self.as_bytes());
        Ok(())
    }

    split!(/// Number of blocks.
        blocks_count, set_blocks_count, blocks_count_lo, blocks_count_hi);
    split!(/// Blocks reserved for the superuser.
        reserved_blocks_count, set_reserved_blocks_count, r_blocks_count_lo, r_blocks_count_hi);
    split!(/// Free blocks, with bigalloc those of all free clusters.
        free_blocks_count, set_free_blocks_count, free_blocks_count_lo, free_blocks_count_hi);
    time!(/// Last write, seconds.
        write_time, set_write_time, wtime, wtime_hi);
    time!(/// Last mount, seconds.
        mount_time, set_mount_time, mtime, mtime_hi);
    time!(/// Creation, seconds.
        creation_time, set_creation_time, mkfs_time, mkfs_time_hi);
    time!(/// Last check, seconds.
        check_time, set_check_time, lastcheck, lastcheck_hi);
    time!(/// First error since the last check, seconds.
        first_error_at, set_first_error_at, first_error_time, first_error_time_hi);
    time!(/// Last error, seconds.
        last_error_at, set_last_error_at, last_error_time, last_error_time_hi);

    /// `s_feature_compat`.
    #[must_use]
    pub fn compat(&self) -> Compat {
        Compat::from_bits_retain(self.feature_compat.get())
    }

    /// `s_feature_incompat`.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.feature_incompat.get())
    }

    /// `s_feature_ro_compat`.
    #[must_use]
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.feature_ro_compat.get())
    }

    /// All three feature words.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            compat: self.compat(),
            incompat: self.incompat(),
            ro_compat: self.ro_compat(),
        }
    }

    /// Sets `s_feature_compat`.
    pub fn set_compat(&mut self, f: Compat) {
        self.feature_compat.set(f.bits());
    }

    /// Sets `s_feature_incompat`.
    pub fn set_incompat(&mut self, f: Incompat) {
        self.feature_incompat.set(f.bits());
    }

    /// Sets `s_feature_ro_compat`.
    pub fn set_ro_compat(&mut self, f: RoCompat) {
        self.feature_ro_compat.set(f.bits());
    }

    /// `s_state`.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_bits_retain(self.state.get())
    }

    /// Sets `s_state`.
    pub fn set_state(&mut self, state: State) {
        self.state.set(state.bits());
    }

    /// `s_flags`.
    #[must_use]
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.flags.get())
    }

    /// `s_default_mount_opts`.
    #[must_use]
    pub fn default_mount_opts(&self) -> DefaultMountOpts {
        DefaultMountOpts::from_bits_retain(self.default_mount_opts.get())
    }

    /// `s_mount_opts`: mount options that apply before the user's, separated by commas.
    #[must_use]
    pub fn mount_opts(&self) -> &[u8] {
        until_nul(&self.mount_opts)
    }

    /// `s_errors`; unknown values mean `Continue`, as in the kernel.
    #[must_use]
    pub fn error_policy(&self) -> ErrorPolicy {
        match self.errors.get() {
            2 => ErrorPolicy::RemountRo,
            3 => ErrorPolicy::Panic,
            _ => ErrorPolicy::Continue,
        }
    }

    /// The label, up to its first NUL.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        until_nul(&self.volume_name)
    }

    /// Sets the label, cut to 16 bytes.
    pub fn set_label(&mut self, label: &[u8]) {
        self.volume_name = [0; 16];
        for (to, from) in self.volume_name.iter_mut().zip(label) {
            *to = *from;
        }
    }

    /// The directory that it was last mounted on, up to the first NUL.
    #[must_use]
    pub fn last_mounted_on(&self) -> &[u8] {
        until_nul(&self.last_mounted)
    }

    /// Stores the mount point, cut to 63 bytes and padded with NUL.
    pub fn set_last_mounted_on(&mut self, path: &[u8]) {
        self.last_mounted = [0; 64];
        for (to, from) in self.last_mounted.iter_mut().zip(path.iter().take(63)) {
            *to = *from;
        }
    }

    /// The first inode number that is not reserved.
    #[must_use]
    pub fn first_inode(&self) -> u32 {
        if self.rev_level.get() < DYNAMIC_REV {
            GOOD_OLD_FIRST_INO
        } else {
            self.first_ino.get()
        }
    }

    /// The hash function of new directory indexes, with the volume's signedness. That of an
    /// existing index follows from its own version byte: see [`HashVersion::of_root`].
    pub fn default_hash(&self) -> Result<HashVersion> {
        HashVersion::default_of_volume(self.def_hash_version, self.flags())
    }

    /// `s_hash_seed`, in the order that the hash functions take.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.hash_seed.map(|w| w.get())
    }

    /// Seed of all `metadata_csum` checksums except the superblock's own.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        if self.incompat().contains(Incompat::CSUM_SEED) {
            self.checksum_seed.get()
        } else {
            ext4_crc32c(!0, &self.uuid)
        }
    }

    /// The protection of the volume's metadata.
    #[must_use]
    pub fn checksum_mode(&self) -> ChecksumMode {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            ChecksumMode::MetadataCsum {
                seed: self.csum_seed(),
            }
        } else if self.ro_compat().contains(RoCompat::GDT_CSUM) {
            ChecksumMode::GdtCsum { uuid: self.uuid }
        } else {
            ChecksumMode::None
        }
    }

    /// The correct `s_checksum`.
    #[must_use]
    pub fn compute_checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        ext4_crc32c(!0, bytes.get(..CHECKSUM_OFFSET).unwrap_or(bytes))
    }

    /// Whether `s_checksum` is valid (always, without `metadata_csum`).
    #[must_use]
    pub fn verify_checksum(&self) -> bool {
        !self.ro_compat().contains(RoCompat::METADATA_CSUM)
            || self.checksum.get() == self.compute_checksum()
    }

    /// Stores `s_checksum`, if the volume has `metadata_csum`.
    pub fn update_checksum(&mut self) {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            self.checksum.set(self.compute_checksum());
        }
    }
}

fn until_nul(b: &[u8]) -> &[u8] {
    b.split(|c| *c == 0).next().unwrap_or_default()
}
