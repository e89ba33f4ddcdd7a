//! Open volumes.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::error::{Error, Result, Why};
use crate::low;
use crate::options::MountOptions;
use crate::resolve::{self, Base, Last, Start};
use crate::shared::{Shared, errno, wait};

/// An open volume: its files by path. See the [crate] for the meaning of paths, and for the state
/// after a crash.
///
/// A clone is the same volume. The volume is open, and locked against all other users in this
/// process and in others, as by a mount, until its last clone, [`File`](crate::File),
/// [`ReadDir`](crate::ReadDir) and [`Walk`](crate::Walk) is dropped.
#[derive(Clone)]
pub struct Volume {
    /// The base of [`beneath`](Self::beneath), which paths cannot leave.
    base: Option<Arc<Base>>,
    pub(crate) shared: Arc<Shared>,
}

/// A volume that may be closed meanwhile.
#[derive(Clone)]
pub(crate) struct WeakVolume {
    base: Option<Weak<Base>>,
    shared: Weak<Shared>,
}

impl WeakVolume {
    /// `None` when the volume is closed, or no handle has its base any more.
    pub(crate) fn upgrade(&self) -> Option<Volume> {
        let base = match &self.base {
            Some(base) => Some(base.upgrade()?),
            None => None,
        };
        let shared = self.shared.upgrade()?;
        Some(Volume { base, shared })
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("path", &self.path())
            .finish()
    }
}

/// Space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes for files and directories, used or not.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes without those reserved for the administrator.
    pub available: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
}

impl Volume {
    /// Opens the image file or block device at `path`, replays its journal, and finishes operations
    /// that a crash interrupted.
    ///
    /// # Errors
    /// It does not exist, or is not ext4; it is open or mounted elsewhere
    /// ([`ResourceBusy`](std::io::ErrorKind::ResourceBusy), and the text names the user); it is
    /// damaged, or has features that are not supported; options are invalid
    /// ([`InvalidInput`](std::io::ErrorKind::InvalidInput)).
    pub fn open(path: impl AsRef<Path>, options: &MountOptions) -> Result<Volume> {
        let path = path.as_ref();
        let failed = |why: Why| Error::new("open", path, why);
        let how = options.settle(path).map_err(|e| failed(Why::Invalid(e)))?;
        let low = low::Volume::open(path, &how).map_err(|e| failed(e.into()))?;
        let shared = Shared::new(low, options.maker, options.effective_umask());
        Ok(Volume {
            base: None,
            shared: Arc::new(shared),
        })
    }

    /// The same volume, restricted to paths that begin with `dir` and stay inside the directory
    /// that it names now. Nothing in the volume leads the rest of a path elsewhere: symbolic links
    /// are not followed (ELOOP), and `..` is refused (EXDEV), as by openat2(2) with
    /// `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. For trees from untrusted sources.
    ///
    /// ```
    /// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
    /// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
    /// volume.create_dir("/out")?;
    /// volume.symlink("/", "/out/up")?;
    /// let out = volume.beneath("/out")?;
    /// out.create_dir("/out/here")?;
    /// let error = out.create_dir("/out/up/there").unwrap_err();
    /// assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    /// # Ok::<(), stetfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// It does not exist, or is not a directory.
    pub fn beneath(&self, dir: impl AsRef<Path>) -> Result<Volume> {
        let dir = dir.as_ref();
        self.based(dir, dir)
    }

    /// The same as [`beneath`](Self::beneath), for paths relative to the directory: `.` is the
    /// directory itself. Walking a tree with it, name by name, takes the same time for each step,
    /// however deep.
    ///
    /// ```
    /// # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
    /// # let volume = stetfs::Volume::open(image.path(), &stetfs::MountOptions::new())?;
    /// volume.create_dir_all("/a/b")?;
    /// let dir = volume.within("/a")?.within("b")?;
    /// dir.write("c", "text")?;
    /// assert_eq!(volume.read_to_string("/a/b/c")?, "text");
    /// # Ok::<(), stetfs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`beneath`](Self::beneath).
    pub fn within(&self, dir: impl AsRef<Path>) -> Result<Volume> {
        self.based(dir.as_ref(), Path::new(""))
    }

    /// The volume whose paths begin with `path` at the directory `dir`.
    fn based(&self, dir: &Path, path: &Path) -> Result<Volume> {
        let found = resolve::find(self.start(), dir, Last::Follow);
        let found = found.and_then(|found| match found.attr.kind.is_dir() {
            true => Ok(found),
            false => errno(Errno::NOTDIR),
        });
        let found = found.map_err(|e| Error::new("go to the directory", dir, e))?;
        Ok(Volume {
            base: Some(Arc::new(Base::new(&self.shared, path, found))),
            shared: Arc::clone(&self.shared),
        })
    }

    /// The start of its paths.
    pub(crate) fn start(&self) -> Start<'_> {
        Start {
            fs: self.shared.fs(),
            base: self.base.as_deref(),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakVolume {
        WeakVolume {
            base: self.base.as_ref().map(Arc::downgrade),
            shared: Arc::downgrade(&self.shared),
        }
    }

    /// Writes everything back and marks the volume clean. Dropping the volume does the same, but
    /// cannot report failures.
    ///
    /// # Errors
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) while there are clones, files or
    /// listings: the volume is closed when the last of them is dropped. The device or the journal
    /// failed: synced changes are in the journal, and the next opening replays them. Data of a file
    /// could not be written back, and no sync reported that.
    pub fn close(self) -> Result<()> {
        let path = self.path().to_owned();
        let failed = |e| Error::new("close", &path, e);
        drop(self.base);
        match Arc::into_inner(self.shared) {
            Some(mut last) => last.close().map_err(|e| failed(Why::Fs(e))),
            None => Err(failed(Why::Fs(low::FsError::InUse(
                "files or other handles of it are still open; it is closed with the last of them"
                    .into(),
            )))),
        }
    }

    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// The device or the journal failed. Also, once, if data of any file could not be written back.
    pub fn sync_all(&self) -> Result<()> {
        wait(|done| self.shared.fs().sync_all(done)).map_err(|e| Error::new("sync", self.path(), e))
    }

    /// The path or address by which it was opened.
    pub fn path(&self) -> &Path {
        self.shared.image()
    }

    /// The space of the volume.
    pub fn space(&self) -> Space {
        let s = self.shared.fs().statfs();
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(s.block_size));
        Space {
            total: bytes(s.blocks),
            free: bytes(s.bfree),
            available: bytes(s.bavail),
            files: s.files,
            files_free: s.ffree,
        }
    }

    /// The volume by inode numbers, on which paths and files are built.
    pub fn low(&self) -> &Arc<low::Volume> {
        &self.shared.low
    }
}
