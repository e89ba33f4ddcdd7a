//! The commands of `stetfs`, a module each.

pub(crate) mod advise;
pub(crate) mod atomic;
pub(crate) mod freeze;
pub(crate) mod image;
pub(crate) mod journal;
mod manual;
pub(crate) mod mkfs;
pub(crate) mod mount;
mod mounted;
pub(crate) mod package;
pub(crate) mod quota;
pub(crate) mod remount;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod umount;
pub(crate) mod volume;

use stetfs_fuse::mountinfo::MountEntry;

use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};
pub use mounted::find_mount;

/// A connection to the server of `mount`.
///
/// # Errors
/// It does not answer, or does not answer this user.
pub fn connect(mount: &MountEntry) -> Result<Client> {
    Client::connect(mount).map_err(|e| {
        Failure::new(
            Code::NotFound,
            format!("the server of {} does not answer: {e}", mount.dir.display()),
        )
        .hint(
            "if it was killed, unmount it with: stetfs umount DIR; only the user who mounted it \
             can ask",
        )
    })
}
