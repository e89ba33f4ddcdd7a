//! Extended attributes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::low::{self, Fs, Ino, XattrSet};
use crate::resolve::{self, Last};
use crate::shared::is;
use crate::volume::Volume;
use stetfs_ext4::Ctx;

pub(crate) fn set(fs: &Fs, ino: Ino, name: &OsStr, value: &[u8]) -> low::Result<()> {
    fs.setxattr(&Ctx::ROOT, ino, name.as_bytes(), value, XattrSet::Any)
}

/// Calls `op` with the file at `path`.
fn with<T>(
    volume: &Volume,
    (path, last): (&Path, Last),
    doing: &'static str,
    op: impl FnOnce(&Fs, Ino) -> low::Result<T>,
) -> Result<T> {
    let fs = volume.shared.fs();
    let done = resolve::find(volume.start(), path, last).and_then(|found| op(fs, found.ino()));
    done.map_err(|e| Error::new(doing, path, e))
}

impl Volume {
    /// The value of an extended attribute, such as `user.comment`, of the file at `path`; `None` if
    /// there is none of this name. Symbolic links are followed.
    ///
    /// # Errors
    /// The file does not exist; the name has a prefix that ext4 does not have.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.get((path.as_ref(), Last::Follow), name.as_ref())
    }

    /// As [`xattr`](Self::xattr), but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`xattr`](Self::xattr).
    pub fn symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.get((path.as_ref(), Last::Keep), name.as_ref())
    }

    fn get(&self, of: (&Path, Last), name: &OsStr) -> Result<Option<Vec<u8>>> {
        with(self, of, "read an attribute of", |fs, ino| {
            match fs.getxattr(ino, name.as_bytes()) {
                Err(e) if is(&e, Errno::NODATA) => Ok(None),
                value => value.map(Some),
            }
        })
    }

    /// The names of all extended attributes of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// The file does not exist.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.list((path.as_ref(), Last::Follow))
    }

    /// As [`xattrs`](Self::xattrs), but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`xattrs`](Self::xattrs).
    pub fn symlink_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.list((path.as_ref(), Last::Keep))
    }

    fn list(&self, of: (&Path, Last)) -> Result<Vec<OsString>> {
        let names = with(self, of, "read the attributes of", |fs, ino| {
            fs.listxattr(ino)
        })?;
        let each = names.split(|b| *b == 0).filter(|name| !name.is_empty());
        Ok(each.map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    /// Sets an extended attribute of the file at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// The file does not exist; there is no room for the value, or it is larger than 64 KiB; the
    /// name has a prefix that ext4 does not have; `user.` on a file that is neither regular nor a
    /// directory; the file is immutable; the volume is read-only.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let of = (path.as_ref(), Last::Follow);
        with(self, of, "set an attribute of", |fs, ino| {
            set(fs, ino, name.as_ref(), value.as_ref())
        })
    }

    /// As [`set_xattr`](Self::set_xattr), but a symbolic link at the end is not followed.
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr).
    pub fn set_symlink_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let of = (path.as_ref(), Last::Keep);
        with(self, of, "set an attribute of", |fs, ino| {
            set(fs, ino, name.as_ref(), value.as_ref())
        })
    }

    /// Removes an extended attribute of the file at `path`. A missing attribute is no error.
    ///
    /// # Errors
    /// As [`set_xattr`](Self::set_xattr).
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let of = (path.as_ref(), Last::Follow);
        with(self, of, "take an attribute from", |fs, ino| {
            match fs.removexattr(&Ctx::ROOT, ino, name.as_ref().as_bytes()) {
                Err(e) if is(&e, Errno::NODATA) => Ok(()),
                done => done,
            }
        })
    }
}
