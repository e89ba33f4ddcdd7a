//! Opening the devices of a volume: a journal may be on one of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs_block::{BlockDevice, BlockError};
use stetfs_ext4::{FsError, Result, journal_device};

use stetfs_nbd::Address;

use super::host::{Host, HostOptions};
use super::part::{OpenDisk, Source};

/// A volume's device, and that of its journal if that is another.
pub(crate) type Devices = (OpenDisk, Option<Host>);

/// What a file system is opened on.
pub(crate) type Views = (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>);

/// As any devices.
pub(crate) fn any((disk, journal): Devices) -> Views {
    (disk.view(), journal.map(|j| j.device()))
}

/// Opens both: the volume, its journal as [`journal`] does.
///
/// # Errors
/// As [`OpenDisk::open`] and [`journal`].
pub(crate) fn devices(source: &Source, options: impl Into<HostOptions>) -> Result<Devices> {
    let options = options.into();
    let disk = OpenDisk::open(&source.path, &source.part, options)?;
    let path = source.journal_path.as_deref();
    let journal = journal(&*disk.view(), path, options).map_err(|e| disk.explain(e))?;
    Ok((disk, journal))
}

/// Opens the device of the volume's journal, if that is not on the volume: at `path`, else where
/// udev links it by its UUID. `None` as well when it is not there: opening the volume then says so.
///
/// # Errors
/// As [`Host::open`]; `JournalDevice` for a `path` that is not there, or that the volume has
/// no use for.
fn journal(
    volume: &dyn BlockDevice,
    path: Option<&Path>,
    options: HostOptions,
) -> Result<Option<Host>> {
    let is_there = |path: &Path| Address::is_meant(path) || path.exists();
    let path = match (journal_device(volume)?, path) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(FsError::JournalDevice(
                "journal_path= was given, but the journal of this volume is not on another device"
                    .into(),
            ));
        }
        (Some(_), Some(path)) if !is_there(path) => {
            let why = format!("there is no {} to be the volume's journal", path.display());
            return Err(FsError::JournalDevice(why));
        }
        (Some(_), Some(path)) => path.to_owned(),
        (Some(uuid), None) => PathBuf::from("/dev/disk/by-uuid").join(uuid),
    };
    if !is_there(&path) {
        return Ok(None);
    }
    Ok(Some(Host::open(&path, options)?))
}

/// Whether what could not be opened can be read: it is write-protected, or an Android sparse image.
pub(super) fn is_only_read(e: &FsError) -> bool {
    let is_sparse = matches!(e, FsError::Device(e) if matches!(**e, BlockError::Sparse { .. }));
    is_sparse || is_write_protected(e)
}

/// Whether a device could not be opened because it cannot be written.
pub fn is_write_protected(e: &FsError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let FsError::Device(e) = e else { return false };
    matches!(&**e, BlockError::Open { source, .. }
        if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
}
