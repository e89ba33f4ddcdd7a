//! The geometry of a volume: sizes, counts and features that never change while it is open.

use stetfs_ondisk::ext4::checksum::ChecksumMode;
use stetfs_ondisk::ext4::features::{Compat, Incompat, RoCompat};
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::IndexLayout;
use stetfs_ondisk::ext4::superblock::Geometry as Layout;

use crate::types::BlockNr;

/// The geometry of an open volume; it never changes. Sizes are in bytes and counts in blocks unless
/// stated otherwise.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Bytes in a block.
    pub block_size: u32,
    /// log2 of `block_size`.
    pub block_bits: u32,
    /// Blocks of the volume.
    pub blocks_count: u64,
    /// 1 on 1 KiB-block volumes, else 0.
    pub first_data_block: u64,
    /// Blocks in a group (the last may be shorter).
    pub blocks_per_group: u32,
    /// Inodes in a group.
    pub inodes_per_group: u32,
    /// Inodes of the volume.
    pub inodes_count: u32,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Bytes of an on-disk inode.
    pub inode_size: u16,
    /// Bytes of a group descriptor.
    pub desc_size: u16,
    /// Number of groups.
    pub groups: u32,
    /// log2 of groups in a flex group (0: no flex_bg).
    pub log_groups_per_flex: u8,
    /// A volume of revision 0, which can have no features (`EXT4_GOOD_OLD_REV`).
    pub revision_0: bool,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Features that an implementation without them may only read.
    pub ro_compat: RoCompat,
    /// Seed of every metadata checksum.
    pub csum_seed: u32,
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// The hash of new directory indexes, and of the reading order of small directories. Its
    /// signedness is the volume's.
    pub hash: HashVersion,
    /// Volume UUID.
    pub uuid: [u8; 16],
    /// Places of the metadata of each group.
    pub layout: Layout,
    /// The protection of metadata by checksums.
    pub checksums: ChecksumMode,
    /// `i_extra_isize` of new inodes.
    pub want_extra_isize: u16,
}

impl Geometry {
    /// Bytes in a cluster, the unit of allocation. Without `bigalloc` a cluster is a block.
    pub fn cluster_size(&self) -> u32 {
        self.block_size
            .saturating_mul(self.layout.blocks_per_cluster)
    }

    /// Blocks in a cluster (ext4: cluster ratio).
    pub(crate) fn ratio(&self) -> u32 {
        self.layout.blocks_per_cluster.max(1)
    }

    /// First block of the cluster around a block.
    pub(crate) fn cluster_start(&self, nr: BlockNr) -> BlockNr {
        nr - nr.saturating_sub(self.first_data_block) % u64::from(self.ratio())
    }

    /// The layout of directory indexes.
    pub(crate) fn index_layout(&self) -> IndexLayout {
        IndexLayout {
            tail: self.metadata_csum(),
            max_levels: match self.incompat.contains(Incompat::LARGEDIR) {
                true => 2,
                false => 1,
            },
        }
    }

    /// The limit of a directory's size, bytes (exclusive).
    pub(crate) fn max_dir_size(&self) -> u64 {
        match self.incompat.contains(Incompat::LARGEDIR) {
            true => 1 << 32,
            false => 1 << 31,
        }
    }

    /// Whether metadata carries crc32c checksums.
    pub fn metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors carry a checksum, and groups may be uninitialised.
    pub fn has_group_checksums(&self) -> bool {
        self.checksums != ChecksumMode::None
    }

    /// Whether an inode may count more than 2³²-1 sectors.
    pub fn huge_file(&self) -> bool {
        self.ro_compat.contains(RoCompat::HUGE_FILE)
    }
}
