//! Existing files that a copy leaves as they are (`-n`, `-u`).

use crate::files::tree::Item;

/// The treatment of existing files.
#[derive(Clone, Copy)]
pub(super) struct Existing {
    /// They stay as they are (`-n`).
    pub(super) stays: bool,
    /// They stay unless the source is newer (`-u`).
    pub(super) stays_if_newer: bool,
}

impl Existing {
    /// Whether `there` stays instead of a copy of `item`.
    pub(super) fn keeps(self, there: &Item, item: &Item) -> bool {
        self.stays || self.stays_if_newer && there.modified >= item.modified
    }
}
