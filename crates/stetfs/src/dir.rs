//! Listings of directories.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::low::{self, FileType, Fs, FsError, Ino, OpenRef};
use crate::metadata::Metadata;
use crate::resolve::{self, Found, Last};
use crate::shared::{errno, error_of};
use crate::volume::{Volume, WeakVolume};
use stetfs_ext4::Ctx;

/// Names that are read at a time.
const BATCH: usize = 64;

/// The names in a directory, in no particular order, without `.` and `..`. A name that exists
/// during the whole listing appears once, whatever is created or removed meanwhile.
pub struct ReadDir {
    // Dropped before the volume.
    open: OpenRef,
    volume: Volume,
    path: PathBuf,
    /// Names that were read and not returned yet, in reverse order.
    batch: Vec<low::DirEntry>,
    /// The position for the next batch; `None` at the end.
    next: Option<u64>,
}

/// A name in a directory.
#[derive(Clone)]
pub struct DirEntry {
    volume: WeakVolume,
    path: PathBuf,
    kind: FileType,
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path)
            .finish()
    }
}

impl DirEntry {
    /// The directory's path joined with the name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name.
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// The type of the file.
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// The attributes of the file; a symbolic link is not followed. It is looked up by its path.
    ///
    /// # Errors
    /// The file no longer exists; the volume is closed.
    pub fn metadata(&self) -> Result<Metadata> {
        match self.volume.upgrade() {
            Some(volume) => volume.symlink_metadata(&self.path),
            None => {
                let closed = error_of(Errno::SHUTDOWN);
                Err(Error::new("look at", &self.path, closed))
            }
        }
    }
}

/// Names of an open directory from `cookie` on, and the next position; `None` at the end.
pub(crate) fn batch(
    fs: &Fs,
    open: &OpenRef,
    cookie: u64,
) -> low::Result<(Vec<low::DirEntry>, Option<u64>)> {
    let mut batch: Vec<low::DirEntry> = Vec::with_capacity(BATCH);
    fs.readdir(open, cookie, &mut |entry| {
        batch.push(entry);
        batch.len() < BATCH
    })?;
    let next = (batch.len() == BATCH).then(|| batch.last().map(|e| e.next));
    batch.retain(|entry| entry.name != b"." && entry.name != b"..");
    Ok((batch, next.flatten()))
}

/// Whether the name can be the last part of a path into the directory: only damage produces others.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// Opens a directory for listing.
pub(crate) fn open(fs: &Fs, dir: &Found<'_>) -> low::Result<OpenRef> {
    match dir.attr.kind.is_dir() {
        true => fs.open_inode(&Ctx::ROOT, dir.ino(), OFlags::RDONLY.bits() as i32),
        false => errno(Errno::NOTDIR),
    }
}

impl ReadDir {
    pub(crate) fn new(volume: &Volume, path: &Path) -> Result<ReadDir> {
        let start = volume.start();
        let found = resolve::find(start, path, Last::Follow);
        let open = found.and_then(|dir| self::open(start.fs, &dir));
        Ok(ReadDir {
            open: open.map_err(|e| Error::new("read the directory", path, e))?,
            volume: volume.clone(),
            path: path.to_owned(),
            batch: Vec::new(),
            next: Some(0),
        })
    }

    fn entry(&self, entry: low::DirEntry) -> Result<DirEntry> {
        if !is_name(&entry.name) {
            let what = "an entry has an invalid name";
            let damage = FsError::corrupt("directory", 0, what);
            return Err(Error::new("read the directory", &self.path, damage));
        }
        let path = self.path.join(OsString::from_vec(entry.name));
        let kind = match entry.kind {
            Some(kind) => kind,
            // The volume's directories do not store types.
            None => {
                let attr = self.volume.shared.fs().getattr(entry.ino);
                attr.map_err(|e| Error::new("look at", &path, e))?.kind
            }
        };
        Ok(DirEntry {
            volume: self.volume.downgrade(),
            path,
            kind,
        })
    }

    /// The directory's inode number.
    pub(crate) fn ino(&self) -> Ino {
        self.open.ino()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.batch.is_empty() {
            // After an error the listing ends.
            let from = self.next.take()?;
            match batch(self.volume.shared.fs(), &self.open, from) {
                Ok((mut batch, next)) => {
                    batch.reverse();
                    (self.batch, self.next) = (batch, next);
                }
                Err(e) => return Some(Err(Error::new("read the directory", &self.path, e))),
            }
        }
        let entry = self.batch.pop()?;
        Some(self.entry(entry))
    }
}

impl Volume {
    /// The names in a directory.
    ///
    /// # Errors
    /// It does not exist, or is not a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::new(self, path.as_ref())
    }
}
