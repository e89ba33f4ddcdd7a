//! Open files.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use stetfs_sync::timed::Mutex;

use crate::error::{Error, Result};
use crate::low::{self, FallocateMode, Fs, FsError, OpenRef, SeekWhat, SetAttr, Wait};
use crate::metadata::{Metadata, SetMetadata};
use crate::shared::{Shared, errno, error_of, is, wait};
use stetfs_ext4::Ctx;

/// An open file, as [`std::fs::File`]: [`Read`], [`Write`] and [`Seek`], also of `&File`, and
/// [`FileExt`].
///
/// The file exists until the handle is dropped, with or without a name. The handle keeps its
/// [`Volume`](crate::Volume) open. Nothing is buffered here: after a write returns, the data is in
/// the volume's cache; it is durable after [`sync_all`](Self::sync_all).
pub struct File {
    // Dropped before the volume.
    open: OpenRef,
    volume: Arc<Shared>,
    path: PathBuf,
    access: Access,
    /// The position of the next read or write, bytes.
    at: Mutex<u64>,
}

/// The access for which a file was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish()
    }
}

impl File {
    pub(crate) fn new(open: OpenRef, volume: &Arc<Shared>, path: &Path, access: Access) -> File {
        File {
            open,
            volume: Arc::clone(volume),
            path: path.to_owned(),
            access,
            at: Mutex::new(0),
        }
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open_ref(&self) -> &OpenRef {
        &self.open
    }

    fn fs(&self) -> &Fs {
        self.volume.fs()
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(FsError) -> Error {
        move |e| Error::new(doing, &self.path, e)
    }

    /// The attributes of the file.
    ///
    /// # Errors
    /// The volume is damaged.
    pub fn metadata(&self) -> Result<Metadata> {
        let attr = self.fs().getattr(self.open.ino());
        attr.map(Metadata).map_err(self.failed("look at"))
    }

    /// Changes owner, mode and times.
    ///
    /// # Errors
    /// The file is immutable; the volume is read-only, or full.
    pub fn set_metadata(&self, set: &SetMetadata) -> Result<()> {
        let done = self.fs().setattr(&Ctx::ROOT, self.open.ino(), &set.0);
        done.map(drop).map_err(self.failed("change"))
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// As [`set_metadata`](Self::set_metadata).
    pub fn set_permissions(&self, permissions: std::fs::Permissions) -> Result<()> {
        self.set_metadata(&SetMetadata::from(permissions))
    }

    /// Sets an extended attribute, such as `user.comment`.
    ///
    /// # Errors
    /// As [`Volume::set_xattr`](crate::Volume::set_xattr).
    pub fn set_xattr(&self, name: impl AsRef<std::ffi::OsStr>, value: &[u8]) -> Result<()> {
        crate::xattr::set(self.fs(), self.open.ino(), name.as_ref(), value)
            .map_err(self.failed("set an attribute of"))
    }

    /// Truncates the file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// The file is not open for writing; it would be too large; the volume is full.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let done = self.may_write().and_then(|()| {
            let _one = self.volume.appends(self.open.ino()).read();
            self.fs().setattr(&Ctx::ROOT, self.open.ino(), &set)
        });
        done.map(drop).map_err(self.failed("set the size of"))
    }

    /// Makes the file durable: its data and its metadata. For a directory: its names.
    ///
    /// # Errors
    /// The device or the journal failed. Also, once, if data of the file could not be written back:
    /// changes since the last sync may be lost.
    pub fn sync_all(&self) -> Result<()> {
        wait(|done| self.fs().fsync(&self.open, false, Wait::Inline, done))
            .map_err(self.failed("sync"))
    }

    /// Makes the file's data durable, with the metadata needed to read it.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        wait(|done| self.fs().fsync(&self.open, true, Wait::Inline, done))
            .map_err(self.failed("sync"))
    }

    /// The next run of data at or after `from`, in bytes; `None` if only holes follow. A run ends
    /// at a hole or at the end of the file.
    ///
    /// # Errors
    /// It is not a regular file; the volume is damaged.
    pub fn next_data(&self, from: u64) -> Result<Option<Range<u64>>> {
        self.data_from(from)
            .map_err(self.failed("look for data in"))
    }

    /// Checks the block map of the whole file. A damaged map may name a block again and again, so
    /// that reading the file returns far more data than the volume holds. For callers that read
    /// whole files of an untrusted volume.
    ///
    /// # Errors
    /// The map names a block twice.
    pub fn check_map(&self) -> Result<()> {
        let checked = self.fs().check_map(&self.open);
        checked.map_err(self.failed("look through the map of"))
    }

    fn data_from(&self, from: u64) -> low::Result<Option<Range<u64>>> {
        let fs = self.fs();
        let start = match fs.seek(&self.open, from, SeekWhat::Data) {
            Err(e) if is(&e, Errno::NXIO) => return Ok(None),
            start => start?,
        };
        let end = fs.seek(&self.open, start, SeekWhat::Hole)?;
        Ok(Some(start..end))
    }

    /// Allocates space for `range` (bytes), so that later writes there do not fail for lack of
    /// space. The size does not change; allocated and unwritten bytes read as zeroes.
    ///
    /// # Errors
    /// The file is not open for writing; the volume is full.
    pub fn allocate(&self, range: Range<u64>) -> Result<()> {
        let mode = FallocateMode::Allocate { keep_size: true };
        self.fallocate(mode, range)
            .map_err(self.failed("take space for"))
    }

    /// Frees the space of `range` (bytes), which then reads as zeroes.
    ///
    /// # Errors
    /// The file is not open for writing.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        let done = self.fallocate(FallocateMode::PunchHole, range);
        done.map_err(self.failed("make a hole in"))
    }

    fn fallocate(&self, mode: FallocateMode, range: Range<u64>) -> low::Result<()> {
        self.may_write()?;
        match range.end.saturating_sub(range.start) {
            0 => Ok(()),
            len => self
                .fs()
                .fallocate(&Ctx::ROOT, &self.open, mode, range.start, len),
        }
    }

    /// Reads from `offset` (bytes) into `buf`, and returns the number of bytes, which is smaller
    /// only at the end of the file. The position of [`read`](Read::read) does not change.
    ///
    /// # Errors
    /// The file is not open for reading, or is a directory; the device failed.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = match self.access.read {
            true => self.fs().read(&self.open, offset, buf),
            false => errno(Errno::BADF),
        };
        read.map_err(self.failed("read"))
    }

    /// Writes at `offset` (bytes), and returns the number of bytes, which is smaller if the volume
    /// becomes full. The position of [`write`](Write::write) does not change. As in Linux, a file
    /// opened for appending is written at its end.
    ///
    /// # Errors
    /// The file is not open for writing; the volume is full; the device failed.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let (written, _) = self.put(buf, offset)?;
        Ok(written)
    }

    /// Writes all of `buf` at `offset` (bytes), as [`write_at`](Self::write_at) does.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); a part of `buf` may have been written.
    pub fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> Result<()> {
        while !buf.is_empty() {
            let n = self.write_at(buf, offset)?;
            if n == 0 {
                return Err(self.failed("write")(error_of(Errno::IO)));
            }
            offset += n as u64;
            buf = buf.get(n..).unwrap_or_default();
        }
        Ok(())
    }

    fn may_write(&self) -> low::Result<()> {
        match self.access.write {
            true => Ok(()),
            false => errno(Errno::BADF),
        }
    }

    /// Writes at `offset`, or at the end of a file opened for appending; returns the number of
    /// bytes, and the position after them.
    fn put(&self, buf: &[u8], offset: u64) -> Result<(usize, u64)> {
        let ino = self.open.ino();
        let lock = self.volume.appends(ino);
        let write = |at: u64| -> low::Result<(usize, u64)> {
            let n = self.fs().write(&Ctx::ROOT, &self.open, at, buf, false)?;
            Ok((n, at.saturating_add(n as u64)))
        };
        let written = self.may_write().and_then(|()| match self.access.append {
            true => {
                let _alone = lock.write();
                write(self.fs().getattr(ino)?.size)
            }
            false => {
                let _one = lock.read();
                write(offset)
            }
        });
        written.map_err(self.failed("write"))
    }

    /// The whole content.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>> {
        let size = usize::try_from(self.metadata()?.len()).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        if all.try_reserve_exact(size).is_err() {
            return Err(self.failed("read")(error_of(Errno::NOMEM)));
        }
        all.resize(size, 0);
        let n = self.read_at(&mut all, 0)?;
        all.truncate(n);
        Ok(all)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut at = self.at.lock();
        let n = self.read_at(buf, *at)?;
        *at += n as u64;
        Ok(n)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut at = self.at.lock();
        let (n, end) = self.put(buf, *at)?;
        *at = end;
        Ok(n)
    }

    /// Does nothing, because nothing is buffered; [`File::sync_all`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut at = self.at.lock();
        let (base, by) = match to {
            SeekFrom::Start(n) => (n, 0),
            SeekFrom::Current(by) => (*at, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        let there = base
            .checked_add_signed(by)
            .filter(|n| i64::try_from(*n).is_ok());
        match there {
            Some(there) => {
                *at = there;
                Ok(there)
            }
            None => Err(self.failed("seek in")(error_of(Errno::INVAL)).into()),
        }
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, buf, offset)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(File::write_at(self, buf, offset)?)
    }
}
