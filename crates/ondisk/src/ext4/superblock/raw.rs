//! The layout of the superblock on disk.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bytes::assert_layout;

/// Size of the superblock, bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;

/// `struct ext4_super_block`, in its on-disk layout. Fields carry the documentation's names without
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
    /// [`MAGIC`](super::MAGIC).
    pub magic: U16,
    /// See [`State`](super::State).
    pub state: U16,
    /// See [`ErrorPolicy`](super::ErrorPolicy).
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
    /// See [`Compat`](crate::ext4::features::Compat).
    pub feature_compat: U32,
    /// See [`Incompat`](crate::ext4::features::Incompat).
    pub feature_incompat: U32,
    /// See [`RoCompat`](crate::ext4::features::RoCompat).
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
    /// See [`DefaultMountOpts`](super::DefaultMountOpts).
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
    /// See [`SuperFlags`](super::SuperFlags).
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

assert_layout!(Superblock, SUPERBLOCK_SIZE, {
    inodes_count: 0x0, blocks_count_lo: 0x4, r_blocks_count_lo: 0x8, free_blocks_count_lo: 0xC,
    free_inodes_count: 0x10, first_data_block: 0x14, log_block_size: 0x18, log_cluster_size: 0x1C,
    blocks_per_group: 0x20, clusters_per_group: 0x24, inodes_per_group: 0x28, mtime: 0x2C,
    wtime: 0x30, mnt_count: 0x34, max_mnt_count: 0x36, magic: 0x38, state: 0x3A, errors: 0x3C,
    minor_rev_level: 0x3E, lastcheck: 0x40, checkinterval: 0x44, creator_os: 0x48, rev_level: 0x4C,
    def_resuid: 0x50, def_resgid: 0x52, first_ino: 0x54, inode_size: 0x58, block_group_nr: 0x5A,
    feature_compat: 0x5C, feature_incompat: 0x60, feature_ro_compat: 0x64, uuid: 0x68,
    volume_name: 0x78, last_mounted: 0x88, algorithm_usage_bitmap: 0xC8, prealloc_blocks: 0xCC,
    prealloc_dir_blocks: 0xCD, reserved_gdt_blocks: 0xCE, journal_uuid: 0xD0, journal_inum: 0xE0,
    journal_dev: 0xE4, last_orphan: 0xE8, hash_seed: 0xEC, def_hash_version: 0xFC,
    jnl_backup_type: 0xFD, desc_size: 0xFE, default_mount_opts: 0x100, first_meta_bg: 0x104,
    mkfs_time: 0x108, jnl_blocks: 0x10C, blocks_count_hi: 0x150, r_blocks_count_hi: 0x154,
    free_blocks_count_hi: 0x158, min_extra_isize: 0x15C, want_extra_isize: 0x15E, flags: 0x160,
    raid_stride: 0x164, mmp_interval: 0x166, mmp_block: 0x168, raid_stripe_width: 0x170,
    log_groups_per_flex: 0x174, checksum_type: 0x175, encryption_level: 0x176, reserved_pad: 0x177,
    kbytes_written: 0x178, snapshot_inum: 0x180, snapshot_id: 0x184, snapshot_r_blocks_count: 0x188,
    snapshot_list: 0x190, error_count: 0x194, first_error_time: 0x198, first_error_ino: 0x19C,
    first_error_block: 0x1A0, first_error_func: 0x1A8, first_error_line: 0x1C8,
    last_error_time: 0x1CC, last_error_ino: 0x1D0, last_error_line: 0x1D4, last_error_block: 0x1D8,
    last_error_func: 0x1E0, mount_opts: 0x200, usr_quota_inum: 0x240, grp_quota_inum: 0x244,
    overhead_clusters: 0x248, backup_bgs: 0x24C, encrypt_algos: 0x254, encrypt_pw_salt: 0x258,
    lpf_ino: 0x268, prj_quota_inum: 0x26C, checksum_seed: 0x270, wtime_hi: 0x274, mtime_hi: 0x275,
    mkfs_time_hi: 0x276, lastcheck_hi: 0x277, first_error_time_hi: 0x278, last_error_time_hi: 0x279,
    first_error_errcode: 0x27A, last_error_errcode: 0x27B, encoding: 0x27C, encoding_flags: 0x27E,
    orphan_file_inum: 0x280, reserved: 0x284, checksum: 0x3FC
});
