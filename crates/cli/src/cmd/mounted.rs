//! Lookup of a mount by its directory or by its volume.

use std::path::Path;

use stetfs_fuse::MountError;
use stetfs_fuse::mountinfo::{self, MountEntry};

use crate::failure::{Code, Failure, Result};
use crate::held::Volume;

/// The StetFS mount at a directory, or of an image, a block device or an NBD export.
///
/// # Errors
/// There is none; the volume, or several volumes of the image, are mounted at several places.
pub fn find_mount(place: &Path) -> Result<MountEntry> {
    let full = mountinfo::absolute(place);
    // The table of mounts is searched before the path is opened: a server may not answer.
    let at = full.as_ref().ok().map(|full| mountinfo::mount_at(full));
    match at.transpose().map_err(unreadable)?.flatten() {
        Some(mount) if mountinfo::is_stetfs(&mount) => return Ok(mount),
        None if let Some(volume) = Volume::at(place) => return mount_of(&volume, place),
        _ => {}
    }
    let full =
        full.map_err(|e| Failure::new(Code::NotFound, format!("{}: {e}", place.display())))?;
    Err(Failure::from(MountError::NotMounted(full)).hint(LIST))
}

/// All mounts of this mount namespace.
///
/// # Errors
/// The table of mounts cannot be read.
pub(super) fn mounts() -> Result<Vec<MountEntry>> {
    mountinfo::mounts().map_err(unreadable)
}

fn unreadable(e: std::io::Error) -> Failure {
    Failure::new(Code::System, format!("cannot read the mounts: {e}"))
}

const LIST: &str = "findmnt -t fuse.stetfs,fuseblk.stetfs lists what is mounted";

fn mount_of(volume: &Volume, place: &Path) -> Result<MountEntry> {
    let all = mounts()?.into_iter();
    let mut of: Vec<MountEntry> = all.filter(|m| volume.is_of(m)).collect();
    match (of.pop(), of.as_slice()) {
        (Some(mount), []) => Ok(mount),
        (Some(mount), [other, ..]) => {
            let (a, b) = (other.dir.display(), mount.dir.display());
            let message = format!("{} is mounted on {a} and on {b}", place.display());
            Err(Failure::new(Code::Usage, message).hint("name the directory"))
        }
        (None, _) => {
            let message = format!("{} is not mounted", place.display());
            let hint = volume.user(place).unwrap_or_else(|| LIST.into());
            Err(Failure::new(Code::NotFound, message).hint(hint))
        }
    }
}
