//! Mounting and unmounting without root, by the setuid helper fusermount3.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mount::{MountError, MountOptions, Unmount, open_fuse};
use crate::system::passing;

const PROGRAM: &str = "fusermount3";

fn find() -> Result<(), MountError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file());
    if found {
        Ok(())
    } else {
        Err(MountError::NoFusermount)
    }
}

/// Mounts on `dir` and returns the connection.
///
/// # Errors
/// See [`MountError`].
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    find()?;
    let fail = |source: io::Error| MountError::Mount {
        dir: dir.to_owned(),
        source,
    };
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    let out = Command::new(PROGRAM)
        .arg("-o")
        .arg(text(options))
        .arg("--")
        .arg(dir)
        // fusermount3 sends the descriptor through this socket: its standard input.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::piped())
        .output()
        .map_err(fail)?;
    if !out.status.success() {
        // fusermount3 opens the device as the user, unless it was built otherwise: if that fails
        // here, too, the error is more specific.
        drop(open_fuse()?);
        let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        return Err(fail(io::Error::other(said)));
    }
    receive(&ours).map_err(fail)
}

/// Receives the descriptor from the socket.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let (_, fds) = passing::receive(socket)?;
    let fd = fds.into_iter().next();
    fd.ok_or_else(|| io::Error::other("fusermount3 sent no descriptor"))
}

fn text(options: &MountOptions) -> String {
    // A comma would end the name; fusermount3 accepts one behind a backslash.
    let source = options
        .source
        .display()
        .to_string()
        .replace('\\', "\\\\")
        .replace(',', "\\,");
    let mut text = format!("fsname={source},subtype=stetfs");
    let flags = [
        (options.judged, ",default_permissions"),
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (options.nosuid, ",nosuid"),
        (options.nodev, ",nodev"),
        (options.noexec, ",noexec"),
        // Versions that do not know it refuse it.
        (options.nosymfollow, ",nosymfollow"),
        (options.sync, ",sync"),
        (options.dirsync, ",dirsync"),
        (options.noatime, ",noatime"),
    ];
    for (_, flag) in flags.into_iter().filter(|(on, _)| *on) {
        text.push_str(flag);
    }
    text
}

/// Unmounts `dir`.
pub(crate) fn unmount(dir: &Path, how: Unmount) -> Result<(), MountError> {
    find()?;
    let fail = |source: io::Error| MountError::Unmount {
        dir: dir.to_owned(),
        source,
    };
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if how == Unmount::Lazy {
        command.arg("-z");
    }
    let out = command.arg("--").arg(dir).output().map_err(fail)?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if said.contains("busy") {
        return Err(MountError::Busy(dir.to_owned()));
    }
    Err(fail(io::Error::other(said)))
}
