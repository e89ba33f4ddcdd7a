//! How a volume is mounted, and taken down.

use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags};

/// How a volume appears in the name space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source.
    pub source: PathBuf,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Users other than the one who mounts may use it; the default of a mount by root.
    pub allow_other: bool,
    /// The kernel judges who may do what, by owners and modes; else whoever may use the mount may
    /// do all.
    pub judged: bool,
    /// Set-user-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes have no effect.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// No symbolic link is followed.
    pub nosymfollow: bool,
    /// Every write is synced.
    pub sync: bool,
    /// Every change of names is synced.
    pub dirsync: bool,
    /// Shown, and kept by the volume: no access times at all.
    pub noatime: bool,
    /// Likewise for directories.
    pub nodiratime: bool,
    /// Likewise: access times at every read.
    pub strictatime: bool,
}

impl MountOptions {
    /// The defaults for `source`.
    pub fn new(source: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            source: source.into(),
            read_only: false,
            allow_other: is_root(),
            judged: true,
            nosuid: false,
            nodev: false,
            noexec: false,
            nosymfollow: false,
            sync: false,
            dirsync: false,
            noatime: false,
            nodiratime: false,
            strictatime: false,
        }
    }

    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, self.nosuid);
        flags.set(MountFlags::NODEV, self.nodev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags.set(MountFlags::NOSYMFOLLOW, self.nosymfollow);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags.set(MountFlags::NOATIME, self.noatime);
        flags.set(MountFlags::NODIRATIME, self.nodiratime);
        flags.set(MountFlags::STRICTATIME, self.strictatime);
        flags.set(MountFlags::RELATIME, !self.noatime && !self.strictatime);
        flags
    }
}

/// How to take a mount down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse while it is in use.
    Now,
    /// Out of the name space now; served until the last user is gone (MNT_DETACH).
    Lazy,
}

impl Unmount {
    pub(crate) fn flags(self) -> UnmountFlags {
        match self {
            Unmount::Now => UnmountFlags::NOFOLLOW,
            Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        }
    }
}

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
