//! Reads of single files that do not change them.

use std::collections::BTreeSet;

use stetfs::low::{Ctx, FsError};

use super::Session;
use crate::tree::{SeenNode, entries, look, readable};

impl Session {
    /// The attributes and the content of the file at a path.
    ///
    /// # Errors
    /// The volume's.
    pub fn seen(&self, path: &str) -> Result<SeenNode, FsError> {
        look(&self.fs, self.ino(path)?, true)
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// The volume's.
    pub fn names(&self, path: &str) -> Result<BTreeSet<String>, FsError> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let dir = self.fs.open_inode(&Ctx::ROOT, self.ino(path)?, flags)?;
        let all = entries(&self.fs, &dir)?.into_iter();
        let names = all.map(|entry| readable(&entry.name));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    /// The content of a file of the open group, as the group sees it; `None` if the file is not in
    /// it.
    ///
    /// # Errors
    /// The volume's.
    pub fn grouped(&self, path: &str) -> Result<Option<Vec<u8>>, FsError> {
        let (Some(ino), Some(group)) = (self.group_of(path), &self.group) else {
            return Ok(None);
        };
        let mut content = vec![0; group.size(ino)? as usize];
        let mut at = 0;
        while at < content.len() {
            match group.read(ino, at as u64, &mut content[at..])? {
                0 => break,
                n => at += n,
            }
        }
        content.truncate(at);
        Ok(Some(content))
    }
}
