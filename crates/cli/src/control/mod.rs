//! The control socket of a mount: how `umount`, `stat`, `remount` and `flash trace record` talk to
//! its server.
//!
//! One JSON object per line each way. Requests: `{"op":"stat"}`, `{"op":"watch"}`,
//! `{"op":"remount", …}`. Each gets one line; a connection that is still open when the volume has
//! been closed gets a last one, `{"closed":true}` or an error.
//!
//! The socket is made by the process that makes the mount, and removed by the helper: the server
//! may change nothing in the directory where the sockets of all mounts are (decisions/0039).
//!
//! Both ends ask the kernel who the other is: nobody but the user who mounted it, and root, is
//! answered, and no other's answer is believed.

pub(crate) mod client;
mod dir;
pub(crate) mod server;

use std::io;

use dir::Dir;
pub(crate) use dir::place;
use stetfs_fuse::Entrance;

/// Makes the socket of the mount with device number `dev`, at which nobody listens yet. By who may:
/// the server of the mount has nothing there.
///
/// # Errors
/// There is no directory for it that is this user's own.
pub(crate) fn bind(dev: &str) -> io::Result<Entrance> {
    let dir = Dir::make()?;
    let name = socket(dev);
    let _turn = dir.turn()?;
    // The device number is ours now: whatever is there belongs to a server that is gone.
    dir.remove(&name)?;
    let socket = dir.bind(&name)?;
    // To be known again: the number is nobody else's while the socket is open.
    let inode = dir.inode(&name).ok_or(io::ErrorKind::NotFound)?;
    Ok(Entrance {
        socket,
        name: format!("{name} {inode}"),
    })
}

/// Removes the socket of a server that ends: `entrance` is the name that [`bind`] gave.
pub(crate) fn remove(entrance: &str) {
    let Some((name, inode)) = entrance.split_once(' ') else {
        return;
    };
    let Ok(dir) = Dir::open() else { return };
    let Ok(_turn) = dir.turn() else { return };
    // The next mount with this device number may have put its own there.
    if dir.inode(name).is_some_and(|now| now.to_string() == inode) {
        let _ = dir.remove(name);
    }
}

/// The socket of the mount with device number `dev` (`major:minor`).
fn socket(dev: &str) -> String {
    format!("{}.sock", dev.replace(':', "-"))
}

/// Removes the socket that a killed server left.
pub(crate) fn remove_stale(dev: &str) {
    // There may be none.
    let Ok(dir) = Dir::open() else { return };
    let Ok(_turn) = dir.turn() else { return };
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    if dir.connect(&socket(dev)).is_err_and(refused) {
        let _ = dir.remove(&socket(dev));
    }
}
