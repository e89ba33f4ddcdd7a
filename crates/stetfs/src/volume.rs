//! An open volume.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result, Why};
use crate::low;
use crate::options::MountOptions;
use crate::shared::{Shared, wait};

/// An open volume: its files by path. See the [crate] for what paths mean, and for what stands
/// after a crash.
///
/// A clone is the same volume. It is open, and locked against everybody else in this process and in
/// others, as a mount is, until the last clone, [`File`](crate::File), [`ReadDir`](crate::ReadDir)
/// and [`Walk`](crate::Walk) of it is gone.
#[derive(Clone)]
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
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
            shared: Arc::new(shared),
        })
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
