//! Reading directories from a cookie on, without a lock while the caller takes the entries.

use super::checks::{check_dir, errno};
use super::store::Namespace;
use crate::error::{FsError, Result};
use crate::inode::Inode;
use crate::types::DirEntry;

impl Namespace {
    pub(crate) fn read_from(
        &self,
        dir: &Inode,
        mut cookie: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        loop {
            let body = dir.body.read();
            if check_dir(&body).is_err() {
                return errno(libc::ENOTDIR);
            }
            let piece = self.dir_read(dir, &body, cookie)?;
            drop(body);
            for entry in piece.entries {
                if !emit(entry) {
                    return Ok(());
                }
            }
            match piece.next {
                Some(next) if next > cookie => cookie = next,
                Some(_) => {
                    let detail = format!("the index of directory {} leads back", dir.ino);
                    return self
                        .vol
                        .noted(Err(FsError::corrupt("directory index", 0, detail)));
                }
                None => return Ok(()),
            }
        }
    }
}
