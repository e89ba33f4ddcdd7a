//! Finding a journal on a device of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stetfs_block::{BlockDevice, FileDevice, OpenOptions};
use stetfs_ext4::{FsError, Result, journal_device};

/// A volume's device, and that of its journal if that is another.
pub(crate) type Devices = (Arc<dyn BlockDevice>, Option<Arc<dyn BlockDevice>>);

/// Opens both, the journal where udev links it.
///
/// # Errors
/// As [`journal`].
pub(crate) fn devices(path: &Path, options: OpenOptions) -> Result<Devices> {
    let device = FileDevice::open(path, options)?;
    let journal = journal(&device, None, options)?;
    Ok((Arc::new(device), journal.map(|j| j as Arc<dyn BlockDevice>)))
}

/// Opens the device of the volume's journal, if that is not on the volume: at `path`, else where
/// udev links it by its UUID. `None` as well when it cannot be found: opening the volume then says so.
///
/// # Errors
/// As [`FileDevice::open`]; `Unsupported` for a `path` that the volume has no use for.
pub(crate) fn journal(
    volume: &FileDevice,
    path: Option<&Path>,
    options: OpenOptions,
) -> Result<Option<Arc<FileDevice>>> {
    let path = match (journal_device(volume)?, path) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(FsError::Unsupported(
                "journal_path= for a volume whose journal is not on another device".into(),
            ));
        }
        (Some(_), Some(path)) => path.to_owned(),
        (Some(uuid), None) => PathBuf::from("/dev/disk/by-uuid").join(uuid),
    };
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(Arc::new(FileDevice::open(&path, options)?)))
}
