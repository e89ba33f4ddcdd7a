//! Changes of a mount: here or in another namespace, directly or through the helper.

use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::helper::{self, Order};
use crate::mount::mounted::Mounted;
use crate::mount::visit::{Change, visit};
use crate::mount::{self, MountError, MountOptions, Unmount};

impl Mounted {
    /// Unmounts, lazily if it is in use: it is served until the last user is gone.
    ///
    /// # Errors
    /// The error of the kernel or of fusermount3.
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
        let Some(namespace) = self.namespace() else {
            return match self.is_there() {
                true => mount::unmount(self.dir(), how),
                false => Ok(()),
            };
        };
        let Some(way) = self.way_in(namespace) else {
            tracing::info!("the mount is gone, or no process is left in its namespace");
            return Ok(());
        };
        let done = visit(way, self.entry(), Change::Unmount(how.flags()));
        done.map_err(|source| {
            self.refused(source, |dir, source| MountError::Unmount { dir, source })
        })
    }

    /// Changes the mount's flags in place (`mount -o remount`). Root only.
    ///
    /// # Errors
    /// EBUSY for a change to read-only with files open for writing.
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
        let done = match self.namespace() {
            None => rustix::mount::mount_remount(self.dir(), flags, c"").map_err(Into::into),
            Some(namespace) => match self.way_in(namespace) {
                Some(way) => visit(way, self.entry(), Change::Remount(flags)),
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

    /// Ends the connection to the kernel: all further use of open files fails.
    ///
    /// # Errors
    /// Not root, or the connection is gone already.
    pub fn abort(&self) -> std::io::Result<()> {
        match helper::ours() {
            Some(helper) => helper.order(Order::Abort),
            None => mount::abort_connection(self.entry()),
        }
    }
}
