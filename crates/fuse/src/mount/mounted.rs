//! A mount that exists, with its directory and namespace.

use std::path::Path;

use stetfs::low::namespaces;

use crate::mount::mountinfo::{self, MountEntry};
use crate::mount::visit::WayIn;

/// A mount, which can be unmounted from any thread.
#[derive(Clone, Debug)]
pub struct Mounted {
    entry: MountEntry,
    /// The mount's namespace, if it is not the server's.
    elsewhere: Option<u64>,
}

impl Mounted {
    /// The mount of `entry`, in the caller's namespace.
    pub(crate) fn here(entry: MountEntry) -> Mounted {
        Mounted {
            entry,
            elsewhere: None,
        }
    }

    /// The mount of `entry`, in another namespace.
    pub(crate) fn elsewhere(entry: MountEntry, namespace: u64) -> Mounted {
        Mounted {
            entry,
            elsewhere: Some(namespace),
        }
    }

    /// The mount's namespace, if it is not the server's.
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

    /// Whether it still exists in the caller's namespace.
    pub(crate) fn is_there(&self) -> bool {
        mountinfo::mount_at(self.dir())
            .ok()
            .flatten()
            .is_some_and(|now| now.dev == self.entry.dev)
    }

    /// A way into the mount's namespace, through a process that sees the mount; none if there is no
    /// such process. One that ends meanwhile does not count: the next one is asked.
    pub(crate) fn way_in(&self, namespace: u64) -> Option<WayIn> {
        namespaces::witnesses(self.dev(), namespace, self.dir())
            .find_map(|pid| WayIn::open(pid, namespace).ok())
    }
}
