//! The place of a mount.

mod change;

use std::path::Path;

use stetfs::low::namespaces;

use crate::mountinfo::{self, MountEntry};

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
    pub(crate) fn viewer(&self, namespace: u64) -> Option<u32> {
        let viewers = namespaces::viewers(self.dev());
        let viewer = viewers
            .iter()
            .find(|v| v.namespace == namespace && v.dir == self.dir())?;
        Some(viewer.pid)
    }
}
