//! Opening the devices of a volume: the journal may be on a device of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs_block::{BlockDevice, BlockError};
use stetfs_ext4::{FsError, Result, journal_device};

use stetfs_nbd::Address;

use super::host::{Host, HostOptions, Unread};
use super::part::{OpenDisk, Place, Source, UnreadDisk};

/// The device of a volume, and that of its journal if it is another.
pub(crate) type Devices = (OpenDisk, Option<Host>);

/// The block devices of a volume and of its journal, as the file system uses them.
pub(crate) type Views = (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>);

/// The devices as trait objects.
pub(crate) fn any((disk, journal): Devices) -> Views {
    (disk.view(), journal.map(|j| j.device()))
}

/// Opens the devices.
///
/// # Errors
/// As [`UnreadDevices::open`] and [`UnreadDevices::read`].
pub(crate) fn devices(source: &Source, options: impl Into<HostOptions>) -> Result<Devices> {
    let options = options.into();
    let place = Place::find(&source.path, &source.part)?;
    UnreadDevices::open(source, place, None, options)?.read(source, options)
}

/// The path where udev links a device by its UUID.
pub(super) fn by_uuid(uuid: &str) -> PathBuf {
    PathBuf::from("/dev/disk/by-uuid").join(uuid)
}

fn is_there(path: &Path) -> bool {
    Address::is_meant(path) || path.exists()
}

/// The devices of a volume, open and locked, before anything is read from them.
pub(crate) struct UnreadDevices {
    disk: UnreadDisk,
    journal: Option<Unread>,
}

impl UnreadDevices {
    /// Opens the volume at `place`, as a first look found it, and its journal: at the path of the
    /// source, or by the UUID of its device, if that is known.
    ///
    /// # Errors
    /// As [`UnreadDisk::open`] and [`Unread::open`].
    pub(crate) fn open(
        source: &Source,
        place: Place,
        uuid: Option<&str>,
        options: HostOptions,
    ) -> Result<UnreadDevices> {
        let disk = UnreadDisk::open(&source.path, place, options)?;
        let named = uuid.map(by_uuid);
        let journal = source.journal_path.clone().or(named);
        // A missing device is reported when the volume has been read.
        let journal = journal.filter(|path| is_there(path));
        let journal = journal.map(|path| Unread::open(&path, options));
        Ok(UnreadDevices {
            disk,
            journal: journal.transpose()?,
        })
    }

    /// All open devices.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Unread> {
        [self.disk.host()].into_iter().chain(&self.journal)
    }

    /// Finds the volume, and opens its journal if that is not open. The journal is `None` also if
    /// its device is missing: opening the volume then fails.
    ///
    /// # Errors
    /// As [`UnreadDisk::read`] and [`Host::open`]; `JournalDevice` for a path that does not exist,
    /// or that the volume does not need.
    pub(crate) fn read(&self, source: &Source, options: HostOptions) -> Result<Devices> {
        let read_only = options.file.read_only;
        let disk = self.disk.read(&source.path, &source.part, read_only)?;
        let uuid = journal_device(&*disk.view()).map_err(|e| disk.explain(e))?;
        let wrong = |why: String| Err(FsError::JournalDevice(why));
        match (&uuid, source.journal_path.as_deref()) {
            (None, None) => return Ok((disk, None)),
            (None, Some(_)) => {
                let why = "journal_path= was given, but the journal of this volume is not on \
                           another device";
                return wrong(why.into());
            }
            (Some(_), Some(path)) if !is_there(path) => {
                let path = path.display();
                return wrong(format!(
                    "there is no {path}, which journal_path= names as the volume's journal"
                ));
            }
            (Some(_), _) => {}
        }
        let journal = match &self.journal {
            Some(journal) => Some(journal.connect(read_only)?),
            None => {
                let path = uuid.as_deref().map(by_uuid).filter(|path| is_there(path));
                path.map(|path| Host::open(&path, options)).transpose()?
            }
        };
        Ok((disk, journal))
    }
}

/// Whether a device that could not be opened for writing can be read: it is write-protected, or an
/// Android sparse image.
pub(super) fn is_only_read(e: &FsError) -> bool {
    let is_sparse = matches!(e, FsError::Device(e) if matches!(**e, BlockError::Sparse { .. }));
    is_sparse || is_write_protected(e)
}

/// Whether a device could not be opened because it is write-protected.
pub fn is_write_protected(e: &FsError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let FsError::Device(e) = e else { return false };
    matches!(&**e, BlockError::Open { source, .. }
        if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
}
