//! Notification to systemd that the mount stands (`Type=notify`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the service manager's socket.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// A connection to the service manager, opened while this process still may open one.
pub(crate) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Connects, if there is a service manager.
    pub(crate) fn find() -> Manager {
        let Some(path) = std::env::var_os(SOCKET) else {
            return Manager(None);
        };
        let address = match path.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&path),
        };
        let connect = |to| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&to)?;
            Ok(socket)
        };
        let found = address.and_then(connect);
        Manager(found.inspect_err(tell).ok())
    }

    /// Sends READY=1.
    pub(crate) fn ready(&self) {
        if let Some(socket) = &self.0
            && let Err(e) = socket.send(b"READY=1")
        {
            tell(&e);
        }
    }
}

fn tell(e: &std::io::Error) {
    tracing::warn!("cannot tell the service manager that the mount is ready: {e}");
}
