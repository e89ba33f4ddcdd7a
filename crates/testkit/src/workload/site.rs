//! The site of a section: its directory, and the parameters to build it with.

use std::path::PathBuf;

use super::bytes::Bytes;
use super::plan::Plan;

/// The directory and the parameters of a section.
pub(super) struct Site<'p> {
    pub(super) dir: PathBuf,
    /// Block size of the file system in bytes.
    pub(super) block: u64,
    /// Free inodes before the first section.
    pub(super) free_inodes: u64,
    pub(super) bytes: Bytes,
    pub(super) plan: &'p Plan,
}

impl Site<'_> {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}
