//! The superblock ("The Super Block" in the ext4 documentation).

mod flags;
mod geometry;
mod steady;
#[cfg(test)]
mod tests;

pub use flags::{DefaultMountOpts, State, SuperFlags};
pub use geometry::{Geometry, group_has_super};

use super::checksum::{ChecksumMode, ext4_crc32c};
use super::features::{Compat, Features, Incompat, RoCompat};
use super::hash::HashVersion;
use crate::bytes::{assert_layout, prefix, prefix_mut};
use crate::error::{Result, corrupt};
use crate::num::{high32, low32};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the primary superblock on the volume, whatever the block size.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of the superblock, bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
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
/// Inode of reserved descriptor blocks.
pub const RESIZE_INO: u32 = 7;
/// Inode of the journal.
pub const JOURNAL_INO: u32 = 8;
/// First inode that is not reserved, in revision 0.
pub const GOOD_OLD_FIRST_INO: u32 = 11;

/// `s_errors`: what to do when an error is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum ErrorPolicy {
    /// Go on.
    Continue = 1,
    /// Remount read-only.
    RemountRo = 2,
    /// Panic (StetFS: stop serving).
    Panic = 3,
}

/// `struct ext4_super_block`, as it lies on disk. Fields carry the documentation's names without
/// `s_`.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Number of inodes.
    pub inodes_count: U32,
    /// Low half of the number of blocks.
    pub blocks_count_lo: U32,
    /// Low half of the number of blocks reserved for the superuser.
    pub r_blocks_count_lo: U32,
    /// Low half of the number of free clusters.
    pub free_blocks_count_lo: U32,
    /// Number of free inodes.
    pub free_inodes_count: U32,
    /// Block that holds the superblock: 1 for 1 KiB blocks, else 0.
    pub first_data_block: U32,
    /// Block size is 2^(10 + this) bytes.
    pub log_block_size: U32,
    /// Cluster size is 2^(10 + this) bytes with bigalloc, else equal to log_block_size.
    pub log_cluster_size: U32,
    /// Blocks in a full group.
    pub blocks_per_group: U32,
    /// Clusters in a full group with bigalloc, else blocks.
    pub clusters_per_group: U32,
    /// Inodes in a group.
    pub inodes_per_group: U32,
    /// Last mount, seconds (low half).
    pub mtime: U32,
    /// Last write, seconds (low half).
    pub wtime: U32,
    /// Mounts since the last check.
    pub mnt_count: U16,
    /// Mounts after which a check is due.
    pub max_mnt_count: U16,
    /// [`MAGIC`].
    pub magic: U16,
    /// See [`State`].
    pub state: U16,
    /// See [`ErrorPolicy`].
    pub errors: U16,
    /// Minor revision.
    pub minor_rev_level: U16,
    /// Last check, seconds (low half).
    pub lastcheck: U32,
    /// Seconds between checks.
    pub checkinterval: U32,
    /// 0 for Linux.
    pub creator_os: U32,
    /// 0: original, 1: dynamic inode sizes and features.
    pub rev_level: U32,
    /// User who may use reserved blocks.
    pub def_resuid: U16,
    /// Group that may use reserved blocks.
    pub def_resgid: U16,
    /// First inode that is not reserved.
    pub first_ino: U32,
    /// Size of an inode, bytes.
    pub inode_size: U16,
    /// Group of this copy of the superblock.
    pub block_group_nr: U16,
    /// See [`Compat`].
    pub feature_compat: U32,
    /// See [`Incompat`].
    pub feature_incompat: U32,
    /// See [`RoCompat`].
    pub feature_ro_compat: U32,
    /// Volume UUID.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub volume_name: [u8; 16],
    /// Directory it was last mounted on.
    pub last_mounted: [u8; 64],
    /// Compression (unused).
    pub algorithm_usage_bitmap: U32,
    /// Blocks to preallocate for files (unused).
    pub prealloc_blocks: u8,
    /// Blocks to preallocate for directories (unused).
    pub prealloc_dir_blocks: u8,
    /// Descriptor blocks reserved for growth.
    pub reserved_gdt_blocks: U16,
    /// UUID of an external journal.
    pub journal_uuid: [u8; 16],
    /// Inode of the journal.
    pub journal_inum: U32,
    /// Device number of an external journal.
    pub journal_dev: U32,
    /// First inode of the orphan list.
    pub last_orphan: U32,
    /// Seed of directory hashes.
    pub hash_seed: [U32; 4],
    /// Hash of new directory indexes.
    pub def_hash_version: u8,
    /// 1 when `jnl_blocks` holds a copy of the journal inode.
    pub jnl_backup_type: u8,
    /// Size of a group descriptor with 64bit, bytes.
    pub desc_size: U16,
    /// See [`DefaultMountOpts`].
    pub default_mount_opts: U32,
    /// First meta block group.
    pub first_meta_bg: U32,
    /// Creation, seconds (low half).
    pub mkfs_time: U32,
    /// Copy of the journal inode's `i_block` and size.
    pub jnl_blocks: [U32; 17],
    /// High half of the number of blocks.
    pub blocks_count_hi: U32,
    /// High half of the reserved blocks.
    pub r_blocks_count_hi: U32,
    /// High half of the free clusters.
    pub free_blocks_count_hi: U32,
    /// Every inode has at least this many extra bytes.
    pub min_extra_isize: U16,
    /// New inodes get this many extra bytes.
    pub want_extra_isize: U16,
    /// See [`SuperFlags`].
    pub flags: U32,
    /// Blocks per disk before the next disk.
    pub raid_stride: U16,
    /// Seconds between MMP checks.
    pub mmp_interval: U16,
    /// Block of the MMP structure.
    pub mmp_block: U64,
    /// Blocks per full stripe.
    pub raid_stripe_width: U32,
    /// A flex group is 2^this groups.
    pub log_groups_per_flex: u8,
    /// 1 for CRC-32C.
    pub checksum_type: u8,
    /// Version of the encryption format.
    pub encryption_level: u8,
    /// Zero.
    pub reserved_pad: u8,
    /// KiB written over the volume's life.
    pub kbytes_written: U64,
    /// Unused.
    pub snapshot_inum: U32,
    /// Unused.
    pub snapshot_id: U32,
    /// Unused.
    pub snapshot_r_blocks_count: U64,
    /// Unused.
    pub snapshot_list: U32,
    /// Errors seen since the last check.
    pub error_count: U32,
    /// Time of the first error (low half).
    pub first_error_time: U32,
    /// Inode of the first error.
    pub first_error_ino: U32,
    /// Block of the first error.
    pub first_error_block: U64,
    /// Function that noticed the first error.
    pub first_error_func: [u8; 32],
    /// Source line of the first error.
    pub first_error_line: U32,
    /// Time of the last error (low half).
    pub last_error_time: U32,
    /// Inode of the last error.
    pub last_error_ino: U32,
    /// Source line of the last error.
    pub last_error_line: U32,
    /// Block of the last error.
    pub last_error_block: U64,
    /// Function that noticed the last error.
    pub last_error_func: [u8; 32],
    /// Mount options as text, padded with NUL.
    pub mount_opts: [u8; 64],
    /// Inode of user quota.
    pub usr_quota_inum: U32,
    /// Inode of group quota.
    pub grp_quota_inum: U32,
    /// Overhead in clusters, 0 if not computed.
    pub overhead_clusters: U32,
    /// Groups with superblock backups under sparse_super2.
    pub backup_bgs: [U32; 2],
    /// Encryption algorithms.
    pub encrypt_algos: [u8; 4],
    /// Salt of the encryption password.
    pub encrypt_pw_salt: [u8; 16],
    /// Inode of lost+found.
    pub lpf_ino: U32,
    /// Inode of project quota.
    pub prj_quota_inum: U32,
    /// Checksum seed with metadata_csum_seed.
    pub checksum_seed: U32,
    /// High byte of `wtime`.
    pub wtime_hi: u8,
    /// High byte of `mtime`.
    pub mtime_hi: u8,
    /// High byte of `mkfs_time`.
    pub mkfs_time_hi: u8,
    /// High byte of `lastcheck`.
    pub lastcheck_hi: u8,
    /// High byte of `first_error_time`.
    pub first_error_time_hi: u8,
    /// High byte of `last_error_time`.
    pub last_error_time_hi: u8,
    /// ext4 error code of the first error.
    pub first_error_errcode: u8,
    /// ext4 error code of the last error.
    pub last_error_errcode: u8,
    /// Character encoding of casefolded names.
    pub encoding: U16,
    /// Flags of the encoding.
    pub encoding_flags: U16,
    /// Inode of the orphan file.
    pub orphan_file_inum: U32,
    /// Zero.
    pub reserved: [U32; 94],
    /// CRC-32C of everything before.
    pub checksum: U32,
}

assert_layout!(Superblock, SUPERBLOCK_SIZE, {inodes_count: 0x0, blocks_count_lo: 0x4, r_blocks_count_lo: 0x8, free_blocks_count_lo: 0xC, free_inodes_count: 0x10, first_data_block: 0x14, log_block_size: 0x18, log_cluster_size: 0x1C, blocks_per_group: 0x20, clusters_per_group: 0x24, inodes_per_group: 0x28, mtime: 0x2C, wtime: 0x30, mnt_count: 0x34, max_mnt_count: 0x36, magic: 0x38, state: 0x3A, errors: 0x3C, minor_rev_level: 0x3E, lastcheck: 0x40, checkinterval: 0x44, creator_os: 0x48, rev_level: 0x4C, def_resuid: 0x50, def_resgid: 0x52, first_ino: 0x54, inode_size: 0x58, block_group_nr: 0x5A, feature_compat: 0x5C, feature_incompat: 0x60, feature_ro_compat: 0x64, uuid: 0x68, volume_name: 0x78, last_mounted: 0x88, algorithm_usage_bitmap: 0xC8, prealloc_blocks: 0xCC, prealloc_dir_blocks: 0xCD, reserved_gdt_blocks: 0xCE, journal_uuid: 0xD0, journal_inum: 0xE0, journal_dev: 0xE4, last_orphan: 0xE8, hash_seed: 0xEC, def_hash_version: 0xFC, jnl_backup_type: 0xFD, desc_size: 0xFE, default_mount_opts: 0x100, first_meta_bg: 0x104, mkfs_time: 0x108, jnl_blocks: 0x10C, blocks_count_hi: 0x150, r_blocks_count_hi: 0x154, free_blocks_count_hi: 0x158, min_extra_isize: 0x15C, want_extra_isize: 0x15E, flags: 0x160, raid_stride: 0x164, mmp_interval: 0x166, mmp_block: 0x168, raid_stripe_width: 0x170, log_groups_per_flex: 0x174, checksum_type: 0x175, encryption_level: 0x176, reserved_pad: 0x177, kbytes_written: 0x178, snapshot_inum: 0x180, snapshot_id: 0x184, snapshot_r_blocks_count: 0x188, snapshot_list: 0x190, error_count: 0x194, first_error_time: 0x198, first_error_ino: 0x19C, first_error_block: 0x1A0, first_error_func: 0x1A8, first_error_line: 0x1C8, last_error_time: 0x1CC, last_error_ino: 0x1D0, last_error_line: 0x1D4, last_error_block: 0x1D8, last_error_func: 0x1E0, mount_opts: 0x200, usr_quota_inum: 0x240, grp_quota_inum: 0x244, overhead_clusters: 0x248, backup_bgs: 0x24C, encrypt_algos: 0x254, encrypt_pw_salt: 0x258, lpf_ino: 0x268, prj_quota_inum: 0x26C, checksum_seed: 0x270, wtime_hi: 0x274, mtime_hi: 0x275, mkfs_time_hi: 0x276, lastcheck_hi: 0x277, first_error_time_hi: 0x278, last_error_time_hi: 0x279, first_error_errcode: 0x27A, last_error_errcode: 0x27B, encoding: 0x27C, encoding_flags: 0x27E, orphan_file_inum: 0x280, reserved: 0x284, checksum: 0x3FC});

/// Getter and setter of a 64-bit count split in two fields.
macro_rules! split {
    ($(#[$doc:meta])* $get:ident, $set:ident, $lo:ident, $hi:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> u64 {
            // The high halves mean something only on 64bit volumes.
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
    /// Decodes without any validation but the length: for tools that show or repair.
    pub fn decode_unchecked(bytes: &[u8]) -> Result<Self> {
        Superblock::read_from_bytes(prefix("superblock", bytes, SUPERBLOCK_SIZE)?)
            .map_err(|_| corrupt!("superblock", "{} bytes", bytes.len()))
    }

    /// Writes the 1024 bytes as they are; call [`update_checksum`](Self::update_checksum) before.
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

    /// `s_mount_opts`: mount options that come before the user's, separated by commas.
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

    /// Sets the volume's name; more than 16 bytes are cut off.
    pub fn set_label(&mut self, label: &[u8]) {
        self.volume_name = [0; 16];
        for (to, from) in self.volume_name.iter_mut().zip(label) {
            *to = *from;
        }
    }

    /// Where it was last mounted, up to the first NUL.
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

    /// Hash of new directory indexes with the volume's signedness applied. Which variant an
    /// existing index uses follows in the same way from its own version byte:
    /// see [`HashVersion::on_volume`].
    pub fn default_hash(&self) -> Result<HashVersion> {
        HashVersion::on_volume(self.def_hash_version, self.flags())
    }

    /// `s_hash_seed`, in the order the hash functions take it.
    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        self.hash_seed.map(|w| w.get())
    }

    /// Seed of all `metadata_csum` checksums but the superblock's own.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        if self.incompat().contains(Incompat::CSUM_SEED) {
            self.checksum_seed.get()
        } else {
            ext4_crc32c(!0, &self.uuid)
        }
    }

    /// How the volume's metadata is protected.
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

    /// `s_checksum` as it should be.
    #[must_use]
    pub fn compute_checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        ext4_crc32c(!0, bytes.get(..CHECKSUM_OFFSET).unwrap_or(bytes))
    }

    /// Whether `s_checksum` is right (always, without `metadata_csum`).
    #[must_use]
    pub fn verify_checksum(&self) -> bool {
        !self.ro_compat().contains(RoCompat::METADATA_CSUM)
            || self.checksum.get() == self.compute_checksum()
    }

    /// Stores the right `s_checksum` if the volume has `metadata_csum`.
    pub fn update_checksum(&mut self) {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            self.checksum.set(self.compute_checksum());
        }
    }
}

fn until_nul(b: &[u8]) -> &[u8] {
    b.split(|c| *c == 0).next().unwrap_or_default()
}
