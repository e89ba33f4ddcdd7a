//! An atomic group that somebody holds, and that the opener of the volume may end, too.

use parking_lot::Mutex;

use crate::low::{AtomicGroup, Ino};

pub(crate) struct HeldGroup {
    files: Vec<Ino>,
    /// `None` when it has ended.
    pub(crate) group: Mutex<Option<AtomicGroup>>,
}

impl HeldGroup {
    pub(crate) fn new(group: AtomicGroup) -> HeldGroup {
        HeldGroup {
            files: group.files().collect(),
            group: Mutex::new(Some(group)),
        }
    }

    /// Ends it, if it has this file and has not ended: gives what is to be aborted or committed.
    pub(crate) fn take_from(&self, file: Ino) -> Option<AtomicGroup> {
        match self.files.contains(&file) {
            true => self.group.lock().take(),
            false => None,
        }
    }
}
