//! The options of a new volume.

use crate::features::FeatureEdits;
use crate::profile::Profile;

/// The options of a new volume. `None` leaves a value to the profile, and what a profile leaves
/// open follows from the size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatOptions {
    /// The defaults of everything else.
    pub profile: Profile,
    /// Bytes of a block: a power of two from 1024 to 65536.
    pub block_size: Option<u32>,
    /// Bytes of a cluster, with the feature `bigalloc`: a power of two above the block size.
    pub cluster_size: Option<u32>,
    /// Features to add to those of the profile, and to leave out.
    pub features: FeatureEdits,
    /// The label (`s_volume_name`), 16 bytes at most.
    pub label: Vec<u8>,
    /// The UUID; random if absent.
    pub uuid: Option<[u8; 16]>,
    /// Blocks reserved for the superuser, in hundredths of a percent; at most 5000.
    pub reserved: Option<u32>,
    /// Bytes of the volume for each inode.
    pub inode_ratio: Option<u64>,
    /// Number of inodes; overrules `inode_ratio`. Whole blocks of inode tables are used, so that
    /// there may be more.
    pub inodes: Option<u32>,
    /// Bytes of an inode: a power of two from 128 to the block size.
    pub inode_size: Option<u16>,
    /// Bytes of the journal.
    pub journal_size: Option<u64>,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// The time in all timestamps, seconds since 1970; now if absent.
    pub epoch: Option<u64>,
    /// The UUID and the seed of directory hashes follow from this number; random if absent.
    pub seed: Option<u64>,
    /// Zero all inode tables now, instead of leaving those without files to the kernel
    /// (`lazy_itable_init=0` of mke2fs).
    pub zero_tables: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        FormatOptions {
            profile: Profile::default(),
            block_size: None,
            cluster_size: None,
            features: FeatureEdits::default(),
            label: Vec::new(),
            uuid: None,
            reserved: None,
            inode_ratio: None,
            inodes: None,
            inode_size: None,
            journal_size: None,
            root_owner: (0, 0),
            root_mode: 0o755,
            epoch: None,
            seed: None,
            zero_tables: false,
        }
    }
}
