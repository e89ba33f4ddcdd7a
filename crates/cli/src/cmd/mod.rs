//! The commands.

pub(crate) mod bench;
pub(crate) mod mount;
pub(crate) mod remount;
pub(crate) mod stat;
pub(crate) mod umount;
pub(crate) mod volume;

use std::path::Path;

use stetfs_fuse::MountError;
use stetfs_fuse::mountinfo::{self, MountEntry};

use crate::failure::{Code, Failure, Result};

/// The StetFS mount at `dir`.
fn find_mount(dir: &Path) -> Result<MountEntry> {
    let full = mountinfo::absolute(dir)
        .map_err(|e| Failure::new(Code::NotFound, format!("{}: {e}", dir.display())))?;
    let mount = mountinfo::mount_at(&full)
        .map_err(|e| Failure::new(Code::System, format!("cannot read the mounts: {e}")))?;
    match mount {
        Some(mount) if mountinfo::is_stetfs(&mount) => Ok(mount),
        _ => {
            Err(Failure::from(MountError::NotMounted(full))
                .hint("findmnt -t fuse.stetfs lists them"))
        }
    }
}
