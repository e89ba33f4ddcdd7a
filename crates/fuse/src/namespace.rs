//! A mount namespace of the server's own, which never has the mount that it serves
//! (decisions/0025).
//!
//! The last process of a mount namespace takes its mounts down in its own exit, before its
//! `/dev/fuse` is closed, and for `fuseblk` waits there for an answer that only it could give.

use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::mountinfo::{self, MountEntry};
use crate::sys;

/// What a server looks at by path once it serves, as its user has it: with what is mounted within,
/// such as a container's masks.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Moves the calling thread, which must be the only one of its process, and the threads that it
/// starts, to a mount namespace of their own. Takes CAP_SYS_ADMIN.
///
/// # Errors
/// `Unsupported` in a chroot(2) whose root is no mount, where nothing can be kept from arriving,
/// and `PermissionDenied`: the caller has not moved. After others it cannot go on.
pub fn leave_namespace() -> io::Result<()> {
    let root = Path::new("/");
    if mountinfo::mount_at(root)?.is_none() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    sys::unshare_mounts()?;
    // What happens here stays here, and the mount of the volume does not arrive.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(root, private)
        .map_err(|e| io::Error::other(format!("cannot be made private: {e}")))
}

/// Takes every mount out of the calling thread's namespace, which [`leave_namespace`] made, but the
/// system's own and those that the paths in `needed` lie on. What is open stays open. Else the
/// copies would keep volumes in use that their users unmount.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn let_go_of_mounts(needed: &[&Path]) -> io::Result<()> {
    // From the top of the pile.
    for entry in mountinfo::mounts()?.into_iter().rev() {
        let is_system = SYSTEM.iter().any(|dir| entry.dir.starts_with(dir)) && !is_fuse(&entry);
        if is_system || needed.iter().any(|path| path.starts_with(&entry.dir)) {
            continue;
        }
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
        if let Err(e) = rustix::mount::unmount(&entry.dir, flags) {
            // Gone with the one that it was in, or hidden below another.
            tracing::debug!(dir = %entry.dir.display(), "not let go of: {e}");
        }
    }
    Ok(())
}

/// Whether its end could wait for another server.
fn is_fuse(entry: &MountEntry) -> bool {
    matches!(
        entry.fstype.split('.').next(),
        Some("fuse" | "fuseblk" | "virtiofs")
    )
}
