//! A mount namespace of the server's own, which never contains the mount that it serves
//! (decisions/0025).
//!
//! The last process of a mount namespace removes its mounts during its exit, before its `/dev/fuse`
//! is closed, and for `fuseblk` it would wait there for an answer that only it could give.

use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::mount::mountinfo::{self, MountEntry};
use crate::system::sys;

/// Directories whose files a server reads by path while it serves. Their mounts stay as its user
/// has them, including those within, such as a container's masks.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Moves the calling thread, which must be the only one of its process, and the threads that it
/// starts later, to a new mount namespace. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `Unsupported` in a chroot(2) whose root is no mount, where new mounts cannot be kept out, and
/// `PermissionDenied`: the caller has not moved. After other errors it cannot continue.
pub fn leave_namespace() -> io::Result<()> {
    let root = Path::new("/");
    if mountinfo::mount_at(root)?.is_none() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    sys::unshare_mounts()?;
    // Mounts do not propagate in either direction, so the volume's mount does not arrive here.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(root, private)
        .map_err(|e| io::Error::other(format!("cannot be made private: {e}")))
}

/// Unmounts everything in the calling thread's namespace, which [`leave_namespace`] made, except
/// the system's mounts and those below the paths in `needed`. Open files stay open. Otherwise the
/// copied mounts would keep volumes in use after their users unmount them.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn let_go_of_mounts(needed: &[&Path]) -> io::Result<()> {
    // The most recent mounts first.
    for entry in mountinfo::mounts()?.into_iter().rev() {
        let is_system = SYSTEM.iter().any(|dir| entry.dir.starts_with(dir)) && !is_fuse(&entry);
        if is_system || needed.iter().any(|path| path.starts_with(&entry.dir)) {
            continue;
        }
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        if let Err(e) = rustix::mount::unmount(&entry.dir, flags) {
            // It went with its parent, or is hidden below another mount.
            tracing::debug!(dir = %entry.dir.display(), "not let go of: {e}");
        }
    }
    Ok(())
}

/// Whether unmounting it could wait for another server.
fn is_fuse(entry: &MountEntry) -> bool {
    matches!(
        entry.fstype.split('.').next(),
        Some("fuse" | "fuseblk" | "virtiofs")
    )
}
