//! The numbers of ext4's ioctls, and of those of Linux file systems in general, that reach a FUSE
//! server.

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`: inode flags (lsattr, chattr).
pub(crate) const GETFLAGS: u32 = 0x8008_6601;
pub(crate) const SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_GETVERSION`: inode generation.
pub(crate) const GETVERSION: u32 = 0x8008_7601;
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`: the same flags in XFS's terms.
pub(crate) const FSGETXATTR: u32 = 0x801c_581f;
pub(crate) const FSSETXATTR: u32 = 0x401c_5820;
/// `FS_IOC_GETFSLABEL`: the volume's label.
pub(crate) const GETFSLABEL: u32 = 0x8100_9431;
/// `FS_IOC_SETFSLABEL`.
pub(crate) const SETFSLABEL: u32 = 0x4100_9432;
/// `FITRIM`: discards the free space.
pub(crate) const FITRIM: u32 = 0xc018_5879;
/// `EXT4_IOC_SHUTDOWN`, which is `FS_IOC_SHUTDOWN`. Its number declares its argument as an output,
/// so FUSE does not pass on the flags in it.
pub(crate) const SHUTDOWN: u32 = 0x8004_587d;

/// Whether an ioctl only reads.
pub(crate) fn only_looks(cmd: u32) -> bool {
    matches!(cmd, GETFLAGS | GETVERSION | FSGETXATTR | GETFSLABEL)
}
