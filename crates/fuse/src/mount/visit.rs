//! Changes of a mount in a mount namespace other than the server's, by a process of its own.
//!
//! The process has none of the server's descriptors: the server's `/dev/fuse` is closed when the
//! server ends, whatever happens to the process and the namespace. umount(2) waits for the server
//! (`fuseblk`), so no thread of the server may call it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::LinkNameSpaceType;

use crate::mount::mountinfo::{self, MountEntry};

/// The program name under which the visitor is started.
pub const VISITOR: &str = "stetfs-visitor";

/// The change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Unmount(UnmountFlags),
    Remount(MountFlags),
}

/// A mount namespace and the root directory of one of its processes. Both stay when the process
/// ends.
pub(crate) struct WayIn {
    namespace: File,
    root: File,
}

impl WayIn {
    /// The way of process `pid`, which is in mount namespace `namespace`.
    ///
    /// # Errors
    /// The process has ended, or its number belongs to a process elsewhere by now.
    pub(crate) fn open(pid: u32, namespace: u64) -> io::Result<WayIn> {
        let way = WayIn {
            namespace: File::open(format!("/proc/{pid}/ns/mnt"))?,
            root: File::open(format!("/proc/{pid}/root"))?,
        };
        match way.namespace.metadata()?.ino() == namespace {
            true => Ok(way),
            false => Err(Errno::SRCH.into()),
        }
    }
}

/// Makes `change` to `mount`, as seen from `way`. An unmount of a mount that is gone succeeds.
///
/// # Errors
/// The kernel's error.
pub(crate) fn visit(way: WayIn, mount: &MountEntry, change: Change) -> io::Result<()> {
    let (what, flags) = match change {
        Change::Unmount(flags) => ("umount", flags.bits()),
        Change::Remount(flags) => ("remount", flags.bits()),
    };
    let status = Command::new("/proc/self/exe")
        .arg0(VISITOR)
        .args([what, &flags.to_string(), &mount.dev])
        .arg(&mount.dir)
        .stdin(way.namespace)
        .stdout(way.root)
        .status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// The visitor's main function. Its arguments are those of the visit, its standard input is the
/// namespace, its standard output the root directory; its exit code is the errno.
pub fn visitor(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let errno = match pay(&args) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(e) => e.raw_os_error().unwrap_or(libc::EINVAL),
    };
    ExitCode::from(u8::try_from(errno).unwrap_or(libc::EIO as u8))
}

fn pay(args: &[OsString]) -> io::Result<()> {
    let [what, flags, dev, dir] = args else {
        return Err(Errno::INVAL.into());
    };
    let flags = flags.to_str().and_then(|text| text.parse::<u32>().ok());
    let flags = flags.ok_or(io::Error::from(Errno::INVAL))?;
    let namespace = rustix::stdio::stdin();
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))?;
    // Paths are those of that root.
    rustix::process::fchdir(rustix::stdio::stdout())?;
    rustix::process::chroot(".")?;
    // A mount made over it meanwhile must not be changed.
    let there = mountinfo::mount_at(Path::new(dir))?.is_some_and(|m| *dev == *m.dev);
    match what.to_str() {
        Some("umount") if !there => {}
        Some("umount") => rustix::mount::unmount(dir, UnmountFlags::from_bits_retain(flags))?,
        Some("remount") if there => {
            rustix::mount::mount_remount(dir, MountFlags::from_bits_retain(flags), c"")?;
        }
        _ => return Err(Errno::INVAL.into()),
    }
    Ok(())
}
