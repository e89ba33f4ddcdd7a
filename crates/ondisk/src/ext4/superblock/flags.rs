//! Flags of the superblock.

use bitflags::bitflags;

bitflags! {
    /// `s_state`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const VALID_FS = 0x1;
        /// Errors were detected.
        const ERROR_FS = 0x2;
        /// Orphans are being recovered.
        const ORPHAN_FS = 0x4;
        /// Fast commits are being replayed.
        const FC_REPLAY = 0x20;
        const _ = !0;
    }

    /// `s_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SuperFlags: u32 {
        /// Directory hashes treat bytes as signed.
        const SIGNED_HASH = 0x1;
        /// Directory hashes treat bytes as unsigned.
        const UNSIGNED_HASH = 0x2;
        /// A test file system for development code.
        const TEST_FILESYS = 0x4;
        const _ = !0;
    }

    /// `s_default_mount_opts`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DefaultMountOpts: u32 {
        /// `debug`.
        const DEBUG = 0x1;
        /// `bsdgroups`.
        const BSDGROUPS = 0x2;
        /// `user_xattr`.
        const XATTR_USER = 0x4;
        /// `acl`.
        const ACL = 0x8;
        /// 16-bit user numbers (`nouid32`).
        const UID16 = 0x10;
        /// `journal_data` (with `JMODE_ORDERED`: `writeback`).
        const JMODE_DATA = 0x20;
        /// `journal_data_ordered`.
        const JMODE_ORDERED = 0x40;
        /// Both mode bits: `journal_data_writeback`.
        const JMODE_WBACK = 0x60;
        /// `nobarrier`.
        const NOBARRIER = 0x100;
        /// `block_validity`.
        const BLOCK_VALIDITY = 0x200;
        /// `discard`.
        const DISCARD = 0x400;
        /// `nodelalloc`.
        const NODELALLOC = 0x800;
        const _ = !0;
    }
}

impl SuperFlags {
    /// Whether directory hashes treat bytes as unsigned. A volume with both flags is unsigned, as
    /// in Linux and e2fsprogs. One with neither is signed, as in e2fsprogs and as Linux filled it
    /// on most machines. Linux since 6.2 takes such a volume as unsigned, but it sets that flag
    /// before it changes a directory, so no index on a volume without flags depends on it.
    #[must_use]
    pub fn hashes_unsigned(self) -> bool {
        self.contains(SuperFlags::UNSIGNED_HASH)
    }

    /// The flags with the signedness of directory hashes stated, for the first writer of a volume:
    /// other readers of a volume without a statement choose by their machine or version.
    #[must_use]
    pub fn with_signedness(self) -> SuperFlags {
        match self.intersects(SuperFlags::SIGNED_HASH | SuperFlags::UNSIGNED_HASH) {
            true => self,
            false => self | SuperFlags::SIGNED_HASH,
        }
    }
}
