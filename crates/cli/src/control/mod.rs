//! The control socket of a mount: how `umount`, `stat` and `remount` talk to its server.
//!
//! One JSON object per line each way. Requests: `{"op":"stat"}`, `{"op":"watch"}`,
//! `{"op":"remount", …}`. Each gets one line; a connection that is still open when the volume has
//! been closed gets a last one, `{"closed":true}` or an error.

pub(crate) mod client;
pub(crate) mod server;

use std::path::PathBuf;

use stetfs_fuse::is_root;

/// Where the sockets of this user's mounts are.
fn dir() -> PathBuf {
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

/// Removes the socket that a killed server left.
pub(crate) fn remove_stale(dev: &str) {
    // There may be none.
    let _ = std::fs::remove_file(socket(dev));
}
