//! The place of a mount.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use stetfs::low::namespaces;

use crate::helper::{self, Order};
use crate::mount::{self, MountError, MountOptions, Unmount};
use crate::mountinfo::{self, MountEntry};
use crate::visit::{Change, visit};

/// The place of a mount, to take it down from any thread.
#[derive(Clone, Debug)]
pub struct Mounted {
    entry: MountEntry,
    /// The mount namespace it is in, if that is not the server's.
    elsewhere: Option<u64>,
}

impl Mounted {
    /// The mount that `entry` tells of, in the caller's namespace.
    pub(crate) fn here(entry: MountEntry) -> Mounted {
        Mounted {
            entry,
            elsewhere: None,
        }
    }

    /// The mount that `entry` tells of, in another namespace.
    pub(crate) fn elsewhere(entry: MountEntry, namespace: u64) -> Mounted {
        Mounted {
            entry,
            elsewhere: Some(namespace),
        }
    }

    /// The mount namespace it is in, if that is not the server's.
    pub(crate) fn namespace(&self) -> Option<u64> {
        self.elsewhere
    }

    pub(crate) fn entry(&self) -> &MountEntry {
        &self.entry
    }

    /// The directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.entry.dir
    }

    /// The device number, `major:minor`.
    pub fn dev(&self) -> &str {
        &self.entry.dev
    }

    /// Whether it is still in the caller's name space.
    pub(crate) fn is_there(&self) -> bool {
        mountinfo::mount_at(self.dir())
            .ok()
            .flatten()
            .is_some_and(|now| now.dev == self.entry.dev)
    }

    /// A process that sees it, if it is elsewhere.
    fn viewer(&self, namespace: u64) -> Option<u32> {
        let viewers = namespaces::viewers(self.dev());
        let viewer = viewers
            .iter()
            .find(|v| v.namespace == namespace && v.dir == self.dir())?;
        Some(viewer.pid)
    }

    /// Takes the mount down, lazily if it is in use: it is served until the last user is gone.
    ///
    /// # Errors
    /// What the kernel or fusermount3 says.
    pub fn unmount(&self) -> Result<(), MountError> {
        match self.take_down(Unmount::Now) {
            Err(MountError::Busy(dir)) => {
                tracing::warn!(dir = %dir.display(), "in use: detached, and served until the last user is gone");
                self.take_down(Unmount::Lazy)
            }
            other => other,
        }
    }

    pub(crate) fn take_down(&self, how: Unmount) -> Result<(), MountError> {
        if let Some(helper) = helper::ours() {
            let done = helper.order(Order::Unmount(how));
            return done.map_err(|source| {
                self.refused(source, |dir, source| MountError::Unmount { dir, source })
            });
        }
        let Some(namespace) = self.elsewhere else {
            return match self.is_there() {
                true => mount::unmount(self.dir(), how),
                false => Ok(()),
            };
        };
        let Some(pid) = self.viewer(namespace) else {
            tracing::info!("the mount is gone, or nobody is left where it is");
            return Ok(());
        };
        let done = visit(pid, &self.entry, Change::Unmount(how.flags()));
        done.map_err(|source| {
            self.refused(source, |dir, source| MountError::Unmount { dir, source })
        })
    }

    /// Changes the mount's flags in place (`mount -o remount`). Root only.
    ///
    /// # Errors
    /// EBUSY when it is to become read-only and files are open for writing.
    pub fn set_flags(&self, options: &MountOptions) -> Result<(), MountError> {
        self.change_flags(options.flags())
    }

    pub(crate) fn change_flags(&self, flags: MountFlags) -> Result<(), MountError> {
        if let Some(helper) = helper::ours() {
            let done = helper.order(Order::Remount(flags));
            return done.map_err(|source| {
                self.refused(source, |dir, source| MountError::Mount { dir, source })
            });
        }
        let done = match self.elsewhere {
            None => rustix::mount::mount_remount(self.dir(), flags, c"").map_err(Into::into),
            Some(namespace) => match self.viewer(namespace) {
                Some(pid) => visit(pid, &self.entry, Change::Remount(flags)),
                None => return Err(MountError::NotMounted(self.dir().to_owned())),
            },
        };
        done.map_err(|source| self.refused(source, |dir, source| MountError::Mount { dir, source }))
    }

    fn refused(
        &self,
        source: std::io::Error,
        other: impl FnOnce(std::path::PathBuf, std::io::Error) -> MountError,
    ) -> MountError {
        let dir = self.dir().to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::BUSY) => MountError::Busy(dir),
            _ => other(dir, source),
        }
    }

    /// Ends the connection to the kernel: what programs still have open fails from now on.
    ///
    /// # Errors
    /// Not root, or the connection is gone already.
    pub fn abort(&self) -> std::io::Result<()> {
        match helper::ours() {
            Some(helper) => helper.order(Order::Abort),
            None => mount::abort_connection(&self.entry),
        }
    }
}
