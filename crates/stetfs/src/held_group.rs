//! An open atomic group, shared by its handle and by the volume, which may abort it.

use stetfs_sync::timed::Mutex;

use crate::low::{AtomicGroup, Ino};

pub(crate) struct HeldGroup {
    files: Vec<Ino>,
    /// `None` after its end.
    pub(crate) group: Mutex<Option<AtomicGroup>>,
}

impl HeldGroup {
    pub(crate) fn new(group: AtomicGroup) -> HeldGroup {
        HeldGroup {
            files: group.files().collect(),
            group: Mutex::new(Some(group)),
        }
    }

    /// Ends the group if it contains this file and has not ended; returns what is to be aborted or
    /// committed.
    pub(crate) fn take_from(&self, file: Ino) -> Option<AtomicGroup> {
        match self.files.contains(&file) {
            true => self.group.lock().take(),
            false => None,
        }
    }
}
