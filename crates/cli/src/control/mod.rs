//! The control socket of a mount: how `umount`, `stat`, `remount` and `flash trace record` talk to
//! its server.
//!
//! One JSON object per line each way. Requests: `{"op":"stat"}`, `{"op":"watch"}`,
//! `{"op":"remount", …}`. Each gets one line; a connection that is still open when the volume has
//! been closed gets a last one, `{"closed":true}` or an error.
//!
//! Both ends ask the kernel who the other is: nobody but the user who mounted it, and root, is
//! answered, and no other's answer is believed.

pub(crate) mod client;
mod dir;
pub(crate) mod server;

use std::io;

use dir::Dir;
pub(crate) use dir::place;

/// Makes the directory of the sockets, while this process may make one.
///
/// # Errors
/// It cannot be made, or is not this user's own.
pub(crate) fn make_place() -> io::Result<()> {
    Dir::make().map(drop)
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
