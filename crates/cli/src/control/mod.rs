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
    let identity = dir.identity(&name).ok_or(io::ErrorKind::NotFound)?;
    Ok(Entrance {
        socket,
        name: known(&name, &identity),
    })
}

/// A socket by its name, to be known again.
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
    // The next mount with this device number may have put its own there.
    if dir.identity(name).is_some_and(|now| now == identity) {
        let _ = dir.remove(name);
    }
}

/// The socket of the mount with device number `dev` (`major:minor`).
fn socket(dev: &str) -> String {
    format!("{}.sock", dev.replace(':', "-"))
}

/// The socket that a killed server left, for [`remove`]. To be asked while its mount has the device
/// number: then the next one may have a socket of this name at which nobody listens yet.
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

    /// A device number that no mount has.
    const DEV: &str = "4095:1048575";

    /// A killed server's mount is taken down, and the next one has its number at once: its socket
    /// stays, also while nobody listens there yet.
    #[test]
    fn the_socket_of_the_next_mount_stays() {
        let killed = bind(DEV).unwrap();
        let left = left_behind(DEV).unwrap();
        assert_eq!(left, killed.name);
        drop(killed);
        // No mount lives shorter than the clock of files takes for a step.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let next = bind(DEV).unwrap();
        remove(&left);
        assert_eq!(left_behind(DEV), Some(next.name.clone()));
        remove(&next.name);
        assert_eq!(left_behind(DEV), None);
    }
}
