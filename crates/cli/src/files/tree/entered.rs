//! The directories that a walk has entered. A damaged volume must not make a walk endless.

use std::collections::HashSet;
use std::path::Path;

use crate::failure::{Code, Failure, Result};

/// Directories that a command has entered, by [`Item::id`](super::Item::id). On a volume each has
/// one name. Damage that gives one several names can make a tree far larger than its content, or
/// endless.
#[derive(Debug, Default)]
pub(in crate::files) struct Entered(HashSet<(u64, u64)>);

impl Entered {
    /// Enters a directory.
    ///
    /// # Errors
    /// It was entered before.
    pub(in crate::files) fn add(&mut self, path: &Path, id: (u64, u64)) -> Result {
        if self.0.insert(id) {
            return Ok(());
        }
        let message = format!(
            "{} is a directory with a second name: the volume is damaged",
            path.display()
        );
        Err(Failure::new(Code::Volume, message).hint("run e2fsck -f"))
    }
}
