//! FUSE's device, and its connections.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use super::error::MountError;
use crate::mount::mountinfo::MountEntry;

/// Opens `/dev/fuse`; the error names what is missing.
pub(crate) fn open_fuse() -> Result<OwnedFd, MountError> {
    File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map(OwnedFd::from)
        .map_err(MountError::NoFuse)
}

/// Checks that `/dev/fuse` can be opened, for commands that do other work first.
///
/// # Errors
/// [`MountError::NoFuse`].
pub fn look_for_fuse() -> Result<(), MountError> {
    open_fuse().map(drop)
}

/// Ends the connection of a mount that cannot be unmounted: requests fail with ENOTCONN and the
/// server goes on to close the volume. Root only.
pub(crate) fn abort_connection(entry: &MountEntry) -> io::Result<()> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let (major, minor) = entry.dev.split_once(':').ok_or_else(bad)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
    // The kernel's own encoding of a device number.
    let connection = number(major)? << 20 | number(minor)?;
    let path = format!("/sys/fs/fuse/connections/{connection}/abort");
    match std::fs::write(path, "1") {
        // Not every system has it mounted.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
            let control = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&control)?;
            let root = rustix::mount::fsmount(
                &control,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )?;
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
            let abort = format!("{connection}/abort");
            let file = rustix::fs::openat(root, abort, flags, rustix::fs::Mode::empty())?;
            rustix::io::write(file, b"1")?;
            Ok(())
        }
        other => other,
    }
}
