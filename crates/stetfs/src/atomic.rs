//! Atomic groups: several files that change all at once.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::error::{Error, Result, Why};
use crate::held_group::HeldGroup;
use crate::low::{self, Ino};
use crate::open_options::OpenOptions;
use crate::shared::Shared;
use crate::volume::Volume;
use stetfs_ext4::Ctx;

/// A group of files that change all at once or not at all, whatever happens.
///
/// Changes through the group are visible only through it, until [`commit`](Self::commit) makes them
/// visible to all and durable. A crash before the commit leaves no trace of them; neither does a
/// group that is dropped or [aborted](Self::abort). Until the group ends, the content of its files
/// cannot be changed in any other way ([`ResourceBusy`](io::ErrorKind::ResourceBusy)).
///
/// Data must go through the journal: with `data`, `ldj`, `stet` or `afs`.
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
/// // Not visible yet.
/// assert_eq!(volume.read("/to")?, b"0");
/// // From here on both changes are durable; a crash before leaves none of them.
/// transfer.commit()?;
/// assert_eq!((volume.read("/from")?, volume.read("/to")?), (b" 90".to_vec(), b"10".to_vec()));
/// volume.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct AtomicGroup {
    // Dropped before the volume.
    held: Arc<HeldGroup>,
    files: Vec<(PathBuf, Ino)>,
    volume: Arc<Shared>,
}

fn ended() -> Why {
    Why::Invalid("its atomic group was aborted by Volume::abort_atomic_group".into())
}

impl fmt::Debug for AtomicGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = self.files.iter().map(|(path, _)| path);
        f.debug_list().entries(paths).finish()
    }
}

impl Volume {
    /// Begins a group of these existing files.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) if data does not go through the journal;
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if one of them is in another group; the errors
    /// of opening a file for writing.
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
        let held = Arc::new(HeldGroup::new(group));
        let mut groups = self.shared.groups.lock();
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(&held));
        drop(groups);
        Ok(AtomicGroup {
            held,
            files,
            volume: Arc::clone(&self.shared),
        })
    }
}

impl Volume {
    /// Aborts the group that contains the file, whichever handle holds it: its files are as they
    /// were before, and can be changed again. Every later operation through the group's handle
    /// fails, the commit too.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput): the file is in no group; the errors of
    /// opening it.
    pub fn abort_atomic_group(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let file = OpenOptions::new().read(true).open(self, path)?;
        let ino = file.open_ref().ino();
        let groups = self.shared.groups.lock();
        let groups: Vec<_> = groups.iter().filter_map(Weak::upgrade).collect();
        match groups.iter().find_map(|held| held.take_from(ino)) {
            Some(group) => {
                group.abort();
                Ok(())
            }
            None => {
                let why = Why::Invalid("it is in no atomic group".into());
                Err(Error::new("abort the atomic group of", path, why))
            }
        }
    }
}

impl AtomicGroup {
    /// A file of the group, by the path that was given to [`Volume::atomic_group`].
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

    /// Bytes that the group can hold if they are scattered; if they are contiguous it may hold many
    /// times as much. A write beyond the limit fails, and the group goes on. The limit of an
    /// aborted group is 0.
    pub fn limit(&self) -> u64 {
        let group = self.held.group.lock();
        group.as_ref().map_or(0, low::AtomicGroup::limit)
    }

    /// Commits all changes at once, and makes them durable.
    ///
    /// # Errors
    /// The device or the journal failed: when the volume is opened again, either all changes are
    /// there or none. Lack of space is not an error here: the writes reserved it.
    /// [`InvalidInput`](io::ErrorKind::InvalidInput): the group was
    /// [aborted](Volume::abort_atomic_group), and nothing of it remains.
    pub fn commit(self) -> Result<()> {
        let AtomicGroup {
            held,
            files,
            volume,
        } = self;
        let path = files.first().map_or(volume.image(), |(path, _)| path);
        let group = held.group.lock().take();
        let done = group.map_or(Err(ended()), |group| group.commit().map_err(Why::from));
        done.map_err(|e| Error::new("commit the atomic group of", path, e))
    }

    /// Discards all changes. Dropping the group does the same.
    pub fn abort(self) {
        drop(self);
    }
}

/// A file with the changes of its group. [`FileExt`] reads and writes; a write is short if the
/// space ended behind its first part.
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
        let mut group = self.group.held.group.lock();
        let done = match &mut *group {
            Some(group) => what(group).map_err(Why::from),
            None => Err(ended()),
        };
        done.map_err(|e| Error::new(doing, self.path, e))
    }

    /// Size, bytes.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), as for all operations on the file: the group
    /// was [aborted](Volume::abort_atomic_group).
    pub fn len(&self) -> Result<u64> {
        self.does("look at", |group| group.size(self.ino))
    }

    /// Whether the size is 0.
    ///
    /// # Errors
    /// As [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// [`FileTooLarge`](io::ErrorKind::FileTooLarge): beyond the group's
    /// [limit](AtomicGroup::limit).
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.does("set the size of", |group| {
            group.set_size(&Ctx::ROOT, self.ino, size)
        })
    }

    /// Zeroes a range, up to the end of the file.
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
