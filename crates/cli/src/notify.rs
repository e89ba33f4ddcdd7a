//! Tells systemd that the mount stands (`Type=notify`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the service manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends READY=1 if somebody waits for it.
pub(crate) fn ready() {
    let Some(path) = std::env::var_os(SOCKET) else {
        return;
    };
    let address = match path.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|to| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &to));
    if let Err(e) = sent {
        tracing::warn!("cannot tell the service manager that the mount stands: {e}");
    }
}
