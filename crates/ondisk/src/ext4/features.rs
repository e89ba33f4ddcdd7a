//! Feature words of the superblock: `s_feature_compat`, `s_feature_incompat`,
//! `s_feature_ro_compat`.
//!
//! Unknown bits are kept and can be printed, so that a refusal can name them.

use bitflags::bitflags;
use core::fmt;

bitflags! {
    /// Features that a driver may ignore (`s_feature_compat`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation (never used by Linux).
        const DIR_PREALLOC = 0x1;
        /// AFS "imagic" inodes.
        const IMAGIC_INODES = 0x2;
        /// Has a journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Has a resize inode (7) with reserved descriptor blocks.
        const RESIZE_INODE = 0x10;
        /// Hashed directory indexes.
        const DIR_INDEX = 0x20;
        /// Uninitialised groups, never merged.
        const LAZY_BG = 0x40;
        /// Snapshot exclude inode, never merged.
        const EXCLUDE_INODE = 0x80;
        /// Snapshot exclude bitmap, never merged.
        const EXCLUDE_BITMAP = 0x100;
        /// Superblock backups in at most the two groups of `s_backup_bgs`.
        const SPARSE_SUPER2 = 0x200;
        /// The journal has a fast-commit area.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID must not change (encryption IVs depend on them).
        const STABLE_INODES = 0x800;
        /// Orphans are kept in the file `s_orphan_file_inum`.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }

    /// Features without which a driver must not mount (`s_feature_incompat`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Incompat: u32 {
        /// Compression (never in Linux).
        const COMPRESSION = 0x1;
        /// Directory entries carry the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const RECOVER = 0x4;
        /// This is an external journal device.
        const JOURNAL_DEV = 0x8;
        /// Descriptors lie in meta block groups from `s_first_meta_bg` on.
        const META_BG = 0x10;
        /// Extent-mapped files.
        const EXTENTS = 0x40;
        /// 64-bit block numbers.
        const BIT64 = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// Bitmaps and inode tables may lie anywhere.
        const FLEX_BG = 0x200;
        /// Extended attribute values in inodes.
        const EA_INODE = 0x400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// The checksum seed is in `s_checksum_seed`.
        const CSUM_SEED = 0x2000;
        /// Directories over 2 GiB or with three index levels.
        const LARGEDIR = 0x4000;
        /// Data in the inode.
        const INLINE_DATA = 0x8000;
        /// Encryption.
        const ENCRYPT = 0x10000;
        /// Case-insensitive directories.
        const CASEFOLD = 0x20000;
        const _ = !0;
    }

    /// Features without which a driver must not write (`s_feature_ro_compat`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RoCompat: u32 {
        /// Superblock backups in groups 0, 1 and powers of 3, 5, 7 only.
        const SPARSE_SUPER = 0x1;
        /// Files over 2 GiB.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never used).
        const BTREE_DIR = 0x4;
        /// 48-bit `i_blocks`, possibly in file system blocks.
        const HUGE_FILE = 0x8;
        /// Group descriptors have a CRC-16 and groups may be uninitialised ("uninit_bg").
        const GDT_CSUM = 0x10;
        /// More than 65000 subdirectories (link count 1).
        const DIR_NLINK = 0x20;
        /// Inodes have room beyond 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// Has a snapshot, never merged.
        const HAS_SNAPSHOT = 0x80;
        /// Quota in hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters.
        const BIGALLOC = 0x200;
        /// CRC-32C on all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas (never used).
        const REPLICA = 0x800;
        /// Must be mounted read-only.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Shared blocks (Android); read-only.
        const SHARED_BLOCKS = 0x4000;
        /// fs-verity files.
        const VERITY = 0x8000;
        /// The orphan file may be non-empty.
        const ORPHAN_PRESENT = 0x10000;
        const _ = !0;
    }
}

/// A feature word with the names that mke2fs and dumpe2fs use.
pub trait FeatureNames: Copy {
    /// Letter of an unknown feature's name: `C`, `I` or `R`.
    const LETTER: char;
    /// Single bits and their names.
    const NAMES: &'static [(u32, &'static str)];
    /// All bits of the word.
    fn word(self) -> u32;

    /// Name of every set bit, lowest first; an unknown one as `FEATURE_I29`.
    fn names(self) -> Vec<String> {
        (0..32u32)
            .filter(|bit| self.word() & (1 << bit) != 0)
            .map(
                |bit| match Self::NAMES.iter().find(|(mask, _)| *mask == 1 << bit) {
                    Some((_, name)) => (*name).to_owned(),
                    None => format!("FEATURE_{}{bit}", Self::LETTER),
                },
            )
            .collect()
    }

    /// The bits that have no name.
    fn unknown(self) -> u32 {
        Self::NAMES
            .iter()
            .fold(self.word(), |w, (mask, _)| w & !mask)
    }
}

/// Implements [`FeatureNames`] and a `Display` of space-separated names for a flags type.
macro_rules! feature_names {
    ($t:ty, $letter:literal, $($flag:ident = $name:literal),* $(,)?) => {
        impl $crate::ext4::features::FeatureNames for $t {
            const LETTER: char = $letter;
            const NAMES: &'static [(u32, &'static str)] = &[$((<$t>::$flag.bits(), $name)),*];
            fn word(self) -> u32 {
                self.bits()
            }
        }
        impl ::core::fmt::Display for $t {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(&$crate::ext4::features::FeatureNames::names(*self).join(" "))
            }
        }
    };
}

feature_names!(
    Compat,
    'C',
    DIR_PREALLOC = "dir_prealloc",
    IMAGIC_INODES = "imagic_inodes",
    HAS_JOURNAL = "has_journal",
    EXT_ATTR = "ext_attr",
    RESIZE_INODE = "resize_inode",
    DIR_INDEX = "dir_index",
    LAZY_BG = "lazy_bg",
    EXCLUDE_BITMAP = "snapshot_bitmap",
    SPARSE_SUPER2 = "sparse_super2",
    FAST_COMMIT = "fast_commit",
    STABLE_INODES = "stable_inodes",
    ORPHAN_FILE = "orphan_file",
);
feature_names!(
    Incompat,
    'I',
    COMPRESSION = "compression",
    FILETYPE = "filetype",
    RECOVER = "needs_recovery",
    JOURNAL_DEV = "journal_dev",
    META_BG = "meta_bg",
    EXTENTS = "extent",
    BIT64 = "64bit",
    MMP = "mmp",
    FLEX_BG = "flex_bg",
    EA_INODE = "ea_inode",
    DIRDATA = "dirdata",
    CSUM_SEED = "metadata_csum_seed",
    LARGEDIR = "large_dir",
    INLINE_DATA = "inline_data",
    ENCRYPT = "encrypt",
    CASEFOLD = "casefold",
);
feature_names!(
    RoCompat,
    'R',
    SPARSE_SUPER = "sparse_super",
    LARGE_FILE = "large_file",
    HUGE_FILE = "huge_file",
    GDT_CSUM = "uninit_bg",
    DIR_NLINK = "dir_nlink",
    EXTRA_ISIZE = "extra_isize",
    HAS_SNAPSHOT = "snapshot",
    QUOTA = "quota",
    BIGALLOC = "bigalloc",
    METADATA_CSUM = "metadata_csum",
    REPLICA = "replica",
    READONLY = "read-only",
    PROJECT = "project",
    SHARED_BLOCKS = "shared_blocks",
    VERITY = "verity",
    ORPHAN_PRESENT = "orphan_present",
);

/// The three words together, printed in dumpe2fs's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

/// Incompatible features that StetFS writes, but for states of a volume.
pub const WRITTEN_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::FLEX_BG)
    .union(Incompat::LARGEDIR)
    .union(Incompat::MMP)
    .union(Incompat::EA_INODE)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::CSUM_SEED);

/// Read-only compatible features that StetFS maintains when it writes, but for states of a volume.
pub const WRITTEN_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::METADATA_CSUM);

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.compat.names();
        names.extend(self.incompat.names());
        names.extend(self.ro_compat.names());
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_kept_and_printed() {
        let f = Incompat::from_bits_retain(0x2000_0042);
        assert_eq!(f.bits(), 0x2000_0042);
        assert_eq!(f.to_string(), "filetype extent FEATURE_I29");
        assert_eq!(f.unknown(), 0x2000_0000);
    }
}
