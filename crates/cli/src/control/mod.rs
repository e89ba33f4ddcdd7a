//! The control socket of a mount: `umount`, `stat`, `remount` and `flash trace record` talk to its
//! server through it.
//!
//! The protocol is one JSON object per line each way. Requests: `{"op":"stat"}`, `{"op":"watch"}`,
//! `{"op":"remount", …}`. Each gets one line; a connection that is still open when the volume has
//! been closed gets a last one, `{"closed":true}` or an error.
//!
//! The mounter makes the socket, and the helper removes it: the server may change nothing in the
//! directory that holds the sockets of all mounts (decisions/0039).
//!
//! Both ends ask the kernel for the user of the other. A server answers only the user who mounted
//! it, and root; a client believes only a server of its own user, or root's.

pub(crate) mod client;
mod dir;
pub(crate) mod server;

use std::io;
use std::path::PathBuf;

use dir::Dir;
pub(crate) use dir::place;
use stetfs_fuse::Entrance;

/// Creates the socket of the mount with device number `dev`; no server listens at it yet. The
/// mounter calls this: the server has no access to the directory.
///
/// # Errors
/// No directory for it can be had that is this user's own.
pub(crate) fn bind(dev: &str) -> io::Result<Entrance> {
    let dir = Dir::make()?;
    let name = socket(dev);
    let _turn = dir.turn()?;
    // The device number belongs to the new mount: a socket of that name was left by a server that
    // is gone.
    dir.remove(&name)?;
    let socket = dir.bind(&name)?;
    let identity = dir.identity(&name).ok_or(io::ErrorKind::NotFound)?;
    Ok(Entrance {
        socket,
        name: known(&name, &identity),
    })
}

/// The path of the directory that holds the sockets, which is made if there is none.
///
/// # Errors
/// As [`bind`].
pub(crate) fn own_dir() -> io::Result<PathBuf> {
    Dir::make().map(|_| place())
}

/// A socket's name with its identity.
fn known(name: &str, identity: &str) -> String {
    format!("{name} {identity}")
}

/// Removes the socket of a server that ends: `entrance` is the name that [`bind`] gave.
pub(crate) fn remove(entrance: &str) {
    let Some((name, identity)) = entrance.split_once(' ') else {
        return;
    };
    let Ok(dir) = Dir::open() else { return };
    let Ok(_turn) = dir.turn() else { return };
    // The next mount with this device number may have created its own socket there.
    if dir.identity(name).is_some_and(|now| now == identity) {
        let _ = dir.remove(name);
    }
}

/// The socket of the mount with device number `dev` (`major:minor`).
fn socket(dev: &str) -> String {
    format!("{}.sock", dev.replace(':', "-"))
}

/// The socket that a killed server left, for [`remove`]. To be called while its mount has the
/// device number: later the next mount may have a socket of this name at which no server listens
/// yet.
pub(crate) fn left_behind(dev: &str) -> Option<String> {
    let dir = Dir::open().ok()?;
    let _turn = dir.turn().ok()?;
    let name = socket(dev);
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    let is_left = dir.connect(&name).is_err_and(refused);
    let identity = dir.identity(&name).filter(|_| is_left)?;
    Some(known(&name, &identity))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A device number of no mount.
    const DEV: &str = "4095:1048575";

    /// A killed server's mount is taken down, and the next one gets its number at once: its socket
    /// stays, even before its server listens.
    #[test]
    fn the_socket_of_the_next_mount_stays() {
        let killed = bind(DEV).unwrap();
        let left = left_behind(DEV).unwrap();
        assert_eq!(left, killed.name);
        drop(killed);
        // The clock of file times has a coarse step, and mounts live longer than one.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let next = bind(DEV).unwrap();
        remove(&left);
        assert_eq!(left_behind(DEV), Some(next.name.clone()));
        remove(&next.name);
        assert_eq!(left_behind(DEV), None);
    }
}
