//! Directories of a volume that are gone into once.

use std::collections::HashSet;
use std::path::Path;

use crate::failure::{Code, Failure, Result};

/// Directories that a command went into, by [`Item::id`](super::Item::id). On a volume each has one
/// name. Where damage gives it more, a tree can be far larger than what is in it, or have no end.
#[derive(Debug, Default)]
pub(in crate::files) struct Entered(HashSet<(u64, u64)>);

impl Entered {
    /// Goes into another.
    ///
    /// # Errors
    /// It was gone into before.
    pub(in crate::files) fn add(&mut self, path: &Path, id: (u64, u64)) -> Result {
        if self.0.insert(id) {
            return Ok(());
        }
        let message = format!(
            "{} is a directory that has another name already: the volume is damaged",
            path.display()
        );
        Err(Failure::new(Code::Volume, message).hint("run e2fsck -f"))
    }
}
