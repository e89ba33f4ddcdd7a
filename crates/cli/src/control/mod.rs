//! The control socket of a mount: how `umount`, `stat` and `remount` talk to its server.
//!
//! One JSON object per line each way. Requests: `{"op":"stat"}`, `{"op":"watch"}`,
//! `{"op":"remount", …}`. Each gets one line; a connection that is still open when the volume has
//! been closed gets a last one, `{"closed":true}` or an error.

pub(crate) mod client;
pub(crate) mod server;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use stetfs_fuse::is_root;

/// Where the sockets of this user's mounts are.
pub(crate) fn dir() -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/stetfs");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) => PathBuf::from(run).join("stetfs"),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("stetfs-{uid}"))
        }
    }
}

/// The socket of the mount with device number `dev` (`major:minor`).
fn socket(dev: &str) -> PathBuf {
    dir().join(format!("{}.sock", dev.replace(':', "-")))
}

/// Held while sockets come and go: a device number may belong to another mount as soon as its own is
/// taken down, before the server has removed its socket.
struct Turn {
    _dir: OwnedFd,
}

impl Turn {
    /// Waits for it.
    fn wait() -> io::Result<Turn> {
        let dir = OwnedFd::from(File::open(dir())?);
        rustix::fs::flock(&dir, FlockOperation::LockExclusive)?;
        Ok(Turn { _dir: dir })
    }
}

/// Removes the socket that a killed server left.
pub(crate) fn remove_stale(dev: &str) {
    // There may be none.
    let Ok(_turn) = Turn::wait() else { return };
    let path = socket(dev);
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if UnixStream::connect(&path).is_err_and(refused) {
        let _ = std::fs::remove_file(path);
    }
}
