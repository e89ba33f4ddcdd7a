//! The commands.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod certify;
pub(crate) mod crash;
pub(crate) mod device;
pub(crate) mod fault;
pub(crate) mod flash;
pub(crate) mod freeze;
pub(crate) mod image;
pub(crate) mod journal;
mod manual;
pub(crate) mod mount;
pub(crate) mod package;
pub(crate) mod quota;
pub(crate) mod record;
pub(crate) mod remount;
pub(crate) mod ssd;
pub(crate) mod stat;
pub(crate) mod umount;
pub(crate) mod volume;

use std::path::Path;

use stetfs_fuse::MountError;
use stetfs_fuse::mountinfo::{self, MountEntry};

use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};

/// The StetFS mount at `dir`.
fn find_mount(dir: &Path) -> Result<MountEntry> {
    let full = mountinfo::absolute(dir)
        .map_err(|e| Failure::new(Code::NotFound, format!("{}: {e}", dir.display())))?;
    let mount = mountinfo::mount_at(&full)
        .map_err(|e| Failure::new(Code::System, format!("cannot read the mounts: {e}")))?;
    match mount {
        Some(mount) if mountinfo::is_stetfs(&mount) => Ok(mount),
        _ => Err(Failure::from(MountError::NotMounted(full))
            .hint("findmnt -t fuse.stetfs,fuseblk.stetfs lists them")),
    }
}

/// A connection to the server of `mount`.
fn connect(mount: &MountEntry) -> Result<Client> {
    Client::connect(mount).map_err(|e| {
        Failure::new(
            Code::NotFound,
            format!("the server of {} does not answer: {e}", mount.dir.display()),
        )
        .hint(
            "if it was killed, take the mount down with: stetfs umount DIR; \
             only the user who mounted it can ask",
        )
    })
}
