//! The place of a mount.

use std::path::Path;

use crate::mount::{self, MountError};
use crate::mountinfo::{self, MountEntry};

/// The place of a mount, to take it down from any thread.
#[derive(Clone, Debug)]
pub struct Mounted {
    entry: MountEntry,
}

impl Mounted {
    pub(crate) fn new(entry: MountEntry) -> Mounted {
        Mounted { entry }
    }

    /// The directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.entry.dir
    }

    /// The device number, `major:minor`.
    pub fn dev(&self) -> &str {
        &self.entry.dev
    }

    /// Whether it is still in the name space.
    pub(crate) fn is_there(&self) -> bool {
        mountinfo::mount_at(self.dir())
            .ok()
            .flatten()
            .is_some_and(|now| now.dev == self.entry.dev)
    }

    /// Takes the mount down, lazily if it is in use.
    ///
    /// # Errors
    /// What the kernel or fusermount3 says.
    pub fn unmount(&self) -> Result<(), MountError> {
        if !self.is_there() {
            return Ok(());
        }
        mount::unmount_or_detach(self.dir())
    }

    /// Ends the connection to the kernel: what programs still have open fails from now on.
    ///
    /// # Errors
    /// Not root, or the connection is gone already.
    pub fn abort(&self) -> std::io::Result<()> {
        mount::abort_connection(&self.entry)
    }
}
