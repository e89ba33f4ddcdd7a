//! Options for mounting and unmounting.

use std::path::PathBuf;

use rustix::mount::{MountFlags, UnmountFlags};

/// Options of the mount itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The source that `mount` and `df` show.
    pub source: PathBuf,
    /// The mount is read-only.
    pub read_only: bool,
    /// Users other than the mounting one may use it; the default of a mount by root.
    pub allow_other: bool,
    /// The kernel checks permissions, by owners and modes; otherwise every user who may use the
    /// mount may do everything.
    pub judged: bool,
    /// Set-user-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes have no effect.
    pub nodev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
    /// Symbolic links are not followed.
    pub nosymfollow: bool,
    /// Every write is synced.
    pub sync: bool,
    /// Every change of names is synced.
    pub dirsync: bool,
    /// No access times are recorded. Shown by the mount, done by the volume.
    pub noatime: bool,
    /// The same for directories only.
    pub nodiratime: bool,
    /// Access times are recorded at every read; likewise.
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

/// The ways of unmounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse while it is in use.
    Now,
    /// Remove it from the name space now, and serve it until the last user is gone (MNT_DETACH).
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
