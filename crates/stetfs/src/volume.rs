//! An open volume.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use crate::error::{Error, Result, Why};
use crate::low;
use crate::options::MountOptions;
use crate::resolve::{self, Base, Last, Start};
use crate::shared::{Shared, errno, wait};

/// An open volume: its files by path. See the [crate] for what paths mean, and for what stands
/// after a crash.
///
/// A clone is the same volume. It is open, and locked against everybody else in this process and in
/// others, as a mount is, until the last clone, [`File`](crate::File), [`ReadDir`](crate::ReadDir)
/// and [`Walk`](crate::Walk) of it is gone.
#[derive(Clone)]
pub struct Volume {
    /// The base that no path leaves, of [`beneath`](Self::beneath).
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
    /// `None` when it is closed, or no handle has its base any more.
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
    /// Bytes that are free.
    pub free: u64,
    /// Of them, bytes that are not kept for the administrator.
    pub available: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that there can be more.
    pub files_free: u64,
}

impl Volume {
    /// Opens the image file or block device at `path`, replays its journal, and finishes what a
    /// crash interrupted.
    ///
    /// # Errors
    /// It is not there, or not ext4; somebody has it open or mounted
    /// ([`ResourceBusy`](std::io::ErrorKind::ResourceBusy), and the text says who); it is
    /// damaged, or has features that are not supported; options that make no sense
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

    /// The same volume, for paths that begin with `dir` and are not to leave it: the directory that
    /// it leads to now. Of what comes behind, nothing is led elsewhere by what is in the volume: no
    /// symbolic link on the way is followed (ELOOP), and `..` leads nowhere (EXDEV), as of
    /// openat2(2) with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`. For trees that others made.
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
    /// It is not there, or no directory.
    pub fn beneath(&self, dir: impl AsRef<Path>) -> Result<Volume> {
        let dir = dir.as_ref();
        self.based(dir, dir)
    }

    /// The same volume as [`beneath`](Self::beneath) gives, for paths that begin in the directory:
    /// `.` is the directory itself. So a tree is walked name by name, and a step takes the same
    /// time however deep it leads.
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

    /// Brings everything home and marks the volume clean. Dropping does the same, and has nobody to
    /// tell of failures.
    ///
    /// # Errors
    /// [`ResourceBusy`](std::io::ErrorKind::ResourceBusy) while there are clones, files or
    /// listings: the volume is closed when the last of them goes. The device or the journal
    /// failed: what was synced is in the journal, for the next opening to replay. Data of some file
    /// could not be written home, and nobody was told before.
    pub fn close(self) -> Result<()> {
        let path = self.path().to_owned();
        let failed = |e| Error::new("close", &path, e);
        drop(self.base);
        match Arc::into_inner(self.shared) {
            Some(mut last) => last.close().map_err(|e| failed(Why::Fs(e))),
            None => Err(failed(Why::Fs(low::FsError::InUse(
                "there are files or other handles of it; it is closed when the last of them goes"
                    .into(),
            )))),
        }
    }

    /// Makes durable all that was done before.
    ///
    /// # Errors
    /// The device or the journal failed. Once, also after data of any file could not be written
    /// home.
    pub fn sync_all(&self) -> Result<()> {
        wait(|done| self.shared.fs().sync_all(done)).map_err(|e| Error::new("sync", self.path(), e))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        self.shared.image()
    }

    /// How much room there is.
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

    /// What paths and files stand on.
    pub fn low(&self) -> &Arc<low::Volume> {
        &self.shared.low
    }
}
