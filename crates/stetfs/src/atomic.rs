//! Files that change all at once.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result, Why};
use crate::low::{self, Ino};
use crate::open_options::OpenOptions;
use crate::shared::Shared;
use crate::volume::Volume;
use stetfs_ext4::Ctx;

/// Files that change all at once, or not at all, whatever happens.
///
/// What is written through the group is seen through it alone, until [`commit`](Self::commit): then
/// it is what the files hold for everybody, and durable. A crash before leaves nothing of it, and
/// so does a group that is dropped or [aborted](Self::abort). Until the group ends nobody else can
/// change the content of its files ([`ResourceBusy`](io::ErrorKind::ResourceBusy)).
///
/// The journal must be one that data goes through: `data`, `ldj`, `stet` or `afs`.
///
/// ```
/// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
/// # let path = image.path();
/// use std::os::unix::fs::FileExt;
/// use stetfs::{MountOptions, Volume};
///
/// let volume = Volume::open(path, MountOptions::new().journal("stet"))?;
/// volume.write("/from", "100")?;
/// volume.write("/to", "0")?;
///
/// let transfer = volume.atomic_group(["/from", "/to"])?;
/// transfer.file("/from")?.write_all_at(b" 90", 0)?;
/// transfer.file("/to")?.write_all_at(b"10", 0)?;
/// // Nobody sees it yet.
/// assert_eq!(volume.read("/to")?, b"0");
/// // From here on both stand; after a crash before, none does.
/// transfer.commit()?;
/// assert_eq!((volume.read("/from")?, volume.read("/to")?), (b" 90".to_vec(), b"10".to_vec()));
/// volume.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AtomicGroup {
    // Goes before the volume does.
    group: Mutex<low::AtomicGroup>,
    files: Vec<(PathBuf, Ino)>,
    volume: Arc<Shared>,
}

impl fmt::Debug for AtomicGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.files.iter().map(|(path, _)| path);
        f.debug_list().entries(paths).finish()
    }
}

impl Volume {
    /// Begins a group of these files, which are there.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) where data does not go through the journal;
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy): one is in another group; what opening a file
    /// for writing fails of.
    pub fn atomic_group<P: AsRef<Path>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<AtomicGroup> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (mut files, mut open) = (Vec::new(), Vec::new());
        for path in paths {
            let path = path.as_ref();
            let file = options.open(self, path)?;
            open.push(file.open_ref().clone());
            files.push((path.to_owned(), file.open_ref().ino()));
        }
        let first = files.first().map_or(self.path(), |(path, _)| path);
        let group = self.shared.fs().atomic_group(&open);
        let group = group.map_err(|e| Error::new("begin an atomic group with", first, e))?;
        Ok(AtomicGroup {
            group: Mutex::new(group),
            files,
            volume: Arc::clone(&self.shared),
        })
    }
}

impl AtomicGroup {
    /// A file of the group, by the path that it was begun with.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput): it is not in the group.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<AtomicFile<'_>> {
        let path = path.as_ref();
        match self.files.iter().find(|(its, _)| its == path) {
            Some((path, ino)) => Ok(AtomicFile {
                group: self,
                path,
                ino: *ino,
            }),
            None => {
                let why = Why::Invalid("it is not in the atomic group".into());
                Err(Error::new("find", path, why))
            }
        }
    }

    /// Bytes that the group can hold however they are scattered; side by side it may be many times
    /// that. A write beyond the limit is refused, and the group goes on.
    pub fn limit(&self) -> u64 {
        self.group.lock().limit()
    }

    /// Makes all that was written what the files hold, at once, and durable.
    ///
    /// # Errors
    /// The device or the journal failed: when the volume is opened again all of it is there, or
    /// nothing. There is room for it in any case: that was promised to the writes.
    pub fn commit(self) -> Result<()> {
        let AtomicGroup {
            group,
            files,
            volume,
        } = self;
        let path = files.first().map_or(volume.image(), |(path, _)| path);
        let done = group.into_inner().commit();
        done.map_err(|e| Error::new("commit the atomic group of", path, e))
    }

    /// Leaves the files as they are. Dropping does the same.
    pub fn abort(self) {
        drop(self);
    }
}

/// A file as its group has it. [`FileExt`] reads and writes; a write comes back short where the
/// room ended behind its first part.
#[derive(Clone, Copy)]
pub struct AtomicFile<'g> {
    group: &'g AtomicGroup,
    path: &'g Path,
    ino: Ino,
}

impl fmt::Debug for AtomicFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicFile")
            .field("path", &self.path)
            .finish()
    }
}

impl AtomicFile<'_> {
    fn does<T>(
        &self,
        doing: &'static str,
        what: impl FnOnce(&mut low::AtomicGroup) -> low::Result<T>,
    ) -> Result<T> {
        what(&mut self.group.group.lock()).map_err(|e| Error::new(doing, self.path, e))
    }

    /// Bytes that it has.
    ///
    /// # Errors
    /// None: it is in the group.
    pub fn len(&self) -> Result<u64> {
        self.does("look at", |group| group.size(self.ino))
    }

    /// Whether it has none.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts it off at `size` bytes, or extends it to them with a hole.
    ///
    /// # Errors
    /// [`FileTooLarge`](io::ErrorKind::FileTooLarge): beyond the group's
    /// [limit](AtomicGroup::limit).
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.does("set the size of", |group| {
            group.set_size(&Ctx::ROOT, self.ino, size)
        })
    }

    /// Makes a range zeroes, as far as the file reaches.
    ///
    /// # Errors
    /// As [`set_len`](Self::set_len).
    pub fn zero(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.does("write", |group| {
            group.zero(&Ctx::ROOT, self.ino, range.start, len)
        })
    }
}

impl FileExt for AtomicFile<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.does("read", |group| group.read(self.ino, offset, buf))?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(self.does("write", |group| {
            group.write(&Ctx::ROOT, self.ino, offset, buf)
        })?)
    }
}
