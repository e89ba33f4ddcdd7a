//! Changes of a mount in a mount namespace that the server is not in, by a process of its own.
//!
//! It has none of the server's descriptors: whatever becomes of it and of the namespace meanwhile,
//! the server's `/dev/fuse` is closed when the server ends. umount(2) waits for the server
//! (`fuseblk`), so no thread of that may be in it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::thread::LinkNameSpaceType;

use crate::mountinfo::{self, MountEntry};

/// The name under which this program is started for a visit.
pub const VISITOR: &str = "stetfs-visitor";

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Unmount(UnmountFlags),
    Remount(MountFlags),
}

/// Does `change` to `mount`, as process `pid` sees it. One that is gone needs no unmount.
///
/// # Errors
/// What the kernel says.
pub(crate) fn visit(pid: u32, mount: &MountEntry, change: Change) -> io::Result<()> {
    let (what, flags) = match change {
        Change::Unmount(flags) => ("umount", flags.bits()),
        Change::Remount(flags) => ("remount", flags.bits()),
    };
    let status = Command::new("/proc/self/exe")
        .arg0(VISITOR)
        .args([&pid.to_string(), what, &flags.to_string(), &mount.dev])
        .arg(&mount.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// The visitor's main function: its arguments are those of the visit, its exit code the error
/// number.
pub fn visitor(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let errno = match pay(&args) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(e) => e.raw_os_error().unwrap_or(libc::EINVAL),
    };
    ExitCode::from(u8::try_from(errno).unwrap_or(libc::EIO as u8))
}

fn pay(args: &[OsString]) -> io::Result<()> {
    let [pid, what, flags, dev, dir] = args else {
        return Err(Errno::INVAL.into());
    };
    let number = |text: &OsString| text.to_str()?.parse::<u32>().ok();
    let (pid, flags) = number(pid)
        .zip(number(flags))
        .ok_or(io::Error::from(Errno::INVAL))?;
    let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
    let root = File::open(format!("/proc/{pid}/root"))?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    // Paths are as that process sees them.
    rustix::process::fchdir(&root)?;
    rustix::process::chroot(".")?;
    drop((namespace, root));
    // Nothing that was mounted over it meanwhile.
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
