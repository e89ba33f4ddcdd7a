//! Reading directories.

use super::checks::{check_dir, errno};
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::OpenRef;
use crate::types::DirEntry;

impl Fs {
    /// Gives entries from `cookie` (0: the start, or the `next` of an earlier entry) to `emit`
    /// until it says `false` (it could not take the entry) or the end is reached. `.` and `..`
    /// are included. No lock is held while `emit` runs.
    ///
    /// An entry that is there throughout comes exactly once, whatever is added or removed between
    /// the calls.
    ///
    /// # Errors
    /// ENOTDIR; EUCLEAN for damage.
    pub fn readdir(
        &self,
        f: &OpenRef,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let result = self.names.read_from(f, cookie, emit);
        self.touch_atime(&f.inode);
        result
    }
}

impl Namespace {
    fn read_from(
        &self,
        f: &OpenRef,
        mut cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        loop {
            let body = f.inode.body.read();
            if check_dir(&body).is_err() {
                return errno(libc::ENOTDIR);
            }
            let piece = self.dir_read(&f.inode, &body, cookie)?;
            drop(body);
            for entry in piece.entries {
                if !emit(entry) {
                    return Ok(());
                }
            }
            match piece.next {
                Some(next) if next > cookie => cookie = next,
                Some(_) => {
                    let detail = format!("the index of directory {} leads back", f.inode.ino);
                    return self
                        .vol
                        .noted(Err(FsError::corrupt("directory index", 0, detail)));
                }
                None => return Ok(()),
            }
        }
    }
}
