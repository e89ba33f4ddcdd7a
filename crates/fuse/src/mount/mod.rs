//! Making and removing the mount itself.

pub(crate) mod bdi;
mod device;
mod error;
pub(crate) mod fusermount;
pub(crate) mod loopdev;
pub(crate) mod mounted;
pub mod mountinfo;
pub(crate) mod namespace;
mod options;
pub(crate) mod uring_switch;
pub(crate) mod visit;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

pub use self::device::look_for_fuse;
pub(crate) use self::device::{abort_connection, open_fuse};
pub use self::error::MountError;
pub use self::options::{MountOptions, Unmount, is_root};

/// The absolute path of `dir`, if a volume can be mounted on it.
///
/// # Errors
/// It is no directory, a dead mount, or has a StetFS volume mounted already.
pub fn check_dir(dir: &Path) -> Result<PathBuf, MountError> {
    let fail = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::DeadMount(dir.to_owned()),
        _ => MountError::Dir {
            dir: dir.to_owned(),
            source,
        },
    };
    let full = dir.canonicalize().map_err(fail)?;
    if !full.metadata().map_err(fail)?.is_dir() {
        return Err(fail(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    match mountinfo::mount_at(&full).map_err(fail)? {
        Some(below) if mountinfo::is_stetfs(&below) => Err(MountError::Taken {
            dir: full,
            source_path: PathBuf::from(below.source),
        }),
        _ => Ok(full),
    }
}

/// The source that the kernel mounts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// None (type `fuse`).
    Nothing,
    /// A block device, with a block size in bytes (type `fuseblk`): then sync(2) reaches the
    /// server, and umount(2) waits for it.
    Device(&'a Path, u32),
}

/// Mounts with mount(2) on the absolute path `dir`.
pub(crate) fn mount(
    fuse: &OwnedFd,
    what: What<'_>,
    dir: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        fuse.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.judged {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let (fstype, source) = match what {
        What::Nothing => ("fuse.stetfs", options.source.as_path()),
        What::Device(device, block_size) => {
            data.push_str(&format!(",blksize={block_size}"));
            ("fuseblk.stetfs", device)
        }
    };
    let fail = |source: io::Error| MountError::Mount {
        dir: dir.to_owned(),
        source,
    };
    let data = CString::new(data).map_err(|e| fail(e.into()))?;
    rustix::mount::mount(source, dir, fstype, options.flags(), data.as_c_str())
        .map_err(|e| fail(e.into()))
}

/// Unmounts `dir`. Returns when the directory is free again; the server may still be writing data
/// back.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::NoFusermount`] without root, or the kernel's error.
pub fn unmount(dir: &Path, how: Unmount) -> Result<(), MountError> {
    match rustix::mount::unmount(dir, how.flags()) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy(dir.to_owned())),
        Err(rustix::io::Errno::PERM) if !is_root() => fusermount::unmount(dir, how),
        Err(e) => Err(MountError::Unmount {
            dir: dir.to_owned(),
            source: e.into(),
        }),
    }
}
