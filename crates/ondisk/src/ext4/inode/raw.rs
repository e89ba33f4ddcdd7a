//! The layout of an inode, and the inode flags.

use crate::bytes::assert_layout;
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Bits of `i_mode` that hold the file type.
pub const S_IFMT: u16 = 0o170000;
pub(super) const S_IFREG: u16 = 0o100000;
pub(super) const S_IFDIR: u16 = 0o040000;
pub(super) const S_IFLNK: u16 = 0o120000;

/// `struct ext4_inode` with Linux's `osd1` and `osd2`, up to the last known field. An inode on disk
/// may be shorter (128 bytes) or longer (attributes follow), so this serves as the map of offsets
/// only.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawInode {
    pub(super) mode: U16,
    pub(super) uid: U16,
    pub(super) size_lo: U32,
    pub(super) atime: U32,
    pub(super) ctime: U32,
    pub(super) mtime: U32,
    pub(super) dtime: U32,
    pub(super) gid: U16,
    pub(super) links_count: U16,
    pub(super) blocks_lo: U32,
    pub(super) flags: U32,
    pub(super) version: U32,
    pub(super) block: [U32; 15],
    pub(super) generation: U32,
    pub(super) file_acl_lo: U32,
    pub(super) size_high: U32,
    obso_faddr: U32,
    pub(super) blocks_high: U16,
    pub(super) file_acl_high: U16,
    pub(super) uid_high: U16,
    pub(super) gid_high: U16,
    pub(super) checksum_lo: U16,
    reserved: U16,
    pub(super) extra_isize: U16,
    pub(super) checksum_hi: U16,
    pub(super) ctime_extra: U32,
    pub(super) mtime_extra: U32,
    pub(super) atime_extra: U32,
    pub(super) crtime: U32,
    pub(super) crtime_extra: U32,
    pub(super) version_hi: U32,
    pub(super) projid: U32,
}

assert_layout!(RawInode, 160, {
    mode: 0x0, uid: 0x2, size_lo: 0x4, atime: 0x8, ctime: 0xC, mtime: 0x10, dtime: 0x14, gid: 0x18,
    links_count: 0x1A, blocks_lo: 0x1C, flags: 0x20, version: 0x24, block: 0x28, generation: 0x64,
    file_acl_lo: 0x68, size_high: 0x6C, obso_faddr: 0x70, blocks_high: 0x74, file_acl_high: 0x76,
    uid_high: 0x78, gid_high: 0x7A, checksum_lo: 0x7C, reserved: 0x7E, extra_isize: 0x80,
    checksum_hi: 0x82, ctime_extra: 0x84, mtime_extra: 0x88, atime_extra: 0x8C, crtime: 0x90,
    crtime_extra: 0x94, version_hi: 0x98, projid: 0x9C,
});

bitflags! {
    /// `i_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented by Linux).
        const SECRM = 0x1;
        /// Undelete (not implemented by Linux).
        const UNRM = 0x2;
        /// Compressed (not implemented by Linux).
        const COMPR = 0x4;
        /// All writes are synchronous (`chattr +S`).
        const SYNC = 0x8;
        /// Immutable (`chattr +i`).
        const IMMUTABLE = 0x10;
        /// Append only (`chattr +a`).
        const APPEND = 0x20;
        /// Not for dump(8) (`chattr +d`).
        const NODUMP = 0x40;
        /// No access times (`chattr +A`).
        const NOATIME = 0x80;
        /// Dirty compressed file.
        const DIRTY = 0x100;
        /// Has compressed clusters.
        const COMPRBLK = 0x200;
        /// Never compressed.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// Directory with a hashed index.
        const INDEX = 0x1000;
        /// AFS magic directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal (`chattr +j`).
        const JOURNAL_DATA = 0x4000;
        /// The tail must not be merged.
        const NOTAIL = 0x8000;
        /// All directory changes are synchronous (`chattr +D`).
        const DIRSYNC = 0x10000;
        /// Top of unrelated directory trees, for the allocator (`chattr +T`).
        const TOPDIR = 0x20000;
        /// `i_blocks` counts file system blocks.
        const HUGE_FILE = 0x40000;
        /// Mapped by extents.
        const EXTENTS = 0x80000;
        /// fs-verity.
        const VERITY = 0x100000;
        /// Holds a large extended attribute value.
        const EA_INODE = 0x200000;
        /// Unwritten blocks past the end (obsolete).
        const EOFBLOCKS = 0x400000;
        /// DAX.
        const DAX = 0x2000000;
        /// Data lies in the inode.
        const INLINE_DATA = 0x10000000;
        /// New files in this directory take its project (`chattr +P`).
        const PROJINHERIT = 0x20000000;
        /// Directory with case-insensitive names.
        const CASEFOLD = 0x40000000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// Flags that a new inode inherits from its directory.
    pub const INHERITED: Self = Self::SECRM
        .union(Self::UNRM)
        .union(Self::COMPR)
        .union(Self::SYNC)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::NOCOMPR)
        .union(Self::JOURNAL_DATA)
        .union(Self::NOTAIL)
        .union(Self::DIRSYNC)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD)
        .union(Self::DAX);
    /// The inherited flags that have no meaning on a regular file.
    pub const DIRECTORY_ONLY: Self = Self::DIRSYNC
        .union(Self::TOPDIR)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD);
    /// The only inherited flags of files other than directories and regular files.
    pub const OTHER_FILES: Self = Self::NODUMP.union(Self::NOATIME);

    /// The flags that an inode of type `mode` (`i_mode`) inherits from a directory with flags
    /// `self`.
    #[must_use]
    pub fn inherited_by(self, mode: u16) -> Self {
        let taken = self & Self::INHERITED;
        match mode & S_IFMT {
            S_IFDIR => taken,
            S_IFREG => taken - Self::DIRECTORY_ONLY,
            _ => taken & Self::OTHER_FILES,
        }
    }
}
