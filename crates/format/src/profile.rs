//! Profiles: named sets of defaults.

use std::fmt;
use std::str::FromStr;

use stetfs_ondisk::ext4::features::{Compat, Features, Incompat, RoCompat};

/// A named set of defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    /// As mke2fs 1.47 makes ext4: small volumes get small blocks and more inodes, volumes from
    /// 4 TiB on fewer inodes.
    #[default]
    Mke2fs,
    /// Many small files in little space: blocks of 1 KiB and an inode for each 4 KiB, whatever the
    /// size (the usage type `small` of mke2fs).
    Small,
    /// As the build of Android makes its partitions: blocks of 4 KiB, 1 % reserved, no growth, no
    /// metadata checksums.
    Android,
    /// A root file system for boot loaders and older kernels: blocks of 4 KiB and an inode for each
    /// 8 KiB, whatever the size, without features that GRUB 2.06 refuses or Linux 5.10 cannot
    /// write.
    Rootfs,
}

/// The numbers of a profile for a volume of a given size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) features: Features,
    /// Bytes.
    pub(crate) block_size: u32,
    /// Bytes of the volume for each inode.
    pub(crate) inode_ratio: u64,
    /// Bytes.
    pub(crate) inode_size: u16,
    /// Hundredths of a percent.
    pub(crate) reserved: u32,
}

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 4] = [
        Profile::Mke2fs,
        Profile::Small,
        Profile::Android,
        Profile::Rootfs,
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::Mke2fs => "mke2fs",
            Profile::Small => "small",
            Profile::Android => "android",
            Profile::Rootfs => "rootfs",
        }
    }

    /// The defaults for a volume of `bytes` bytes.
    pub(crate) fn defaults(self, bytes: u64) -> Defaults {
        // The usage types of mke2fs, by size: floppy, small, none, big, huge.
        let (block_size, inode_ratio) = match (self, bytes) {
            (Profile::Rootfs, _) => (4096, 8192),
            (Profile::Android, _) => (4096, 16384),
            (Profile::Small, _) => (1024, 4096),
            (Profile::Mke2fs, n) if n < 3 * MIB => (1024, 8192),
            (Profile::Mke2fs, n) if n < 512 * MIB => (1024, 4096),
            (Profile::Mke2fs, n) if n < 4 * TIB => (4096, 16384),
            (Profile::Mke2fs, n) if n < 16 * TIB => (4096, 32768),
            (Profile::Mke2fs, _) => (4096, 65536),
        };
        Defaults {
            features: self.features(),
            block_size,
            inode_ratio,
            inode_size: 256,
            reserved: if self == Profile::Android { 100 } else { 500 },
        }
    }

    fn features(self) -> Features {
        // Base features of mke2fs.conf, with those of `ext4` that all profiles have.
        let mut features = Features {
            compat: Compat::HAS_JOURNAL | Compat::EXT_ATTR | Compat::DIR_INDEX,
            incompat: Incompat::FILETYPE | Incompat::EXTENTS,
            ro_compat: RoCompat::SPARSE_SUPER
                | RoCompat::LARGE_FILE
                | RoCompat::HUGE_FILE
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE,
        };
        if self == Profile::Android {
            features.ro_compat |= RoCompat::GDT_CSUM;
            return features;
        }
        features.compat |= Compat::RESIZE_INODE;
        features.incompat |= Incompat::FLEX_BG | Incompat::BIT64;
        features.ro_compat |= RoCompat::METADATA_CSUM;
        if self != Profile::Rootfs {
            features.compat |= Compat::ORPHAN_FILE;
            features.incompat |= Incompat::CSUM_SEED;
        }
        features
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        let known = Profile::ALL.into_iter().find(|p| p.name() == text);
        known.ok_or_else(|| {
            let names = Profile::ALL.map(Profile::name).join(", ");
            format!("there is no profile {text:?}; there are {names}")
        })
    }
}
