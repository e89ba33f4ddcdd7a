//! The place of a server: how this process gets connections to it.
//!
//! A process that may not connect (a mount's server in its sandbox) asks another one, which knows
//! the address, and gets the open socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::address::{Address, Endpoint};

/// How long a server may not be heard of (its machine, not its answers) before it is lost.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a connection may take at most.
const CONNECT: Duration = Duration::from_secs(10);
/// A name is not looked up again earlier: a lookup may take longer than a server takes to restart.
const LOOKUP: Duration = Duration::from_secs(10);

/// Connections for a process that makes none itself.
pub trait Connect: Send + Sync {
    /// A new connection to the server at `address`, as [`Route::connect`] makes them.
    ///
    /// # Errors
    /// That one's; or nobody connects to this address.
    fn connect(&self, address: &Address) -> io::Result<OwnedFd>;
}

/// The one who connects for this process.
#[derive(Clone, Copy)]
pub struct Connector(pub &'static dyn Connect);

impl PartialEq for Connector {
    fn eq(&self, other: &Connector) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for Connector {}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// The way to one server, for who connects. The addresses of a host's name are looked up before the
/// first connection, and again when none of them answers.
#[derive(Debug)]
pub struct Route {
    endpoint: Endpoint,
    known: Mutex<Known>,
}

/// What a host's name means.
#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// When that was looked up.
    since: Option<Instant>,
}

impl Route {
    /// The way to the server of `address`; its name is not looked up yet.
    pub fn to(address: &Address) -> Route {
        Route {
            endpoint: address.endpoint.clone(),
            known: Mutex::default(),
        }
    }

    /// Connects; no address is waited for longer than `patience`, or 10 s. Silence of the other
    /// machine ends a connection over TCP.
    ///
    /// # Errors
    /// Nobody is there, or nobody knows the host's name.
    pub fn connect(&self, patience: Duration) -> io::Result<OwnedFd> {
        // No time at all would be no limit.
        let patience = patience.clamp(Duration::from_millis(1), CONNECT);
        match &self.endpoint {
            Endpoint::Unix(path) => connect_unix(path, patience),
            Endpoint::Tcp(host, port) => {
                let look_up = || Ok((host.as_str(), *port).to_socket_addrs()?.collect());
                self.connect_to(patience, look_up).map(OwnedFd::from)
            }
        }
    }

    fn connect_to(
        &self,
        patience: Duration,
        look_up: impl Fn() -> io::Result<Vec<SocketAddr>>,
    ) -> io::Result<TcpStream> {
        let mut known = self.known.lock();
        let tried = known.addresses.clone();
        let first = match first_of(&tried, patience) {
            Ok(tcp) => return Ok(tcp),
            Err(e) => e,
        };
        if known.since.is_some_and(|since| since.elapsed() < LOOKUP) {
            return Err(first);
        }
        known.since = Some(Instant::now());
        match look_up() {
            Ok(found) => known.addresses = found,
            Err(e) if tried.is_empty() => {
                known.since = None;
                return Err(e);
            }
            // It is known by the old ones still.
            Err(_) => return Err(first),
        }
        let new = known.addresses.iter().filter(|a| !tried.contains(a));
        match first_of(&new.copied().collect::<Vec<_>>(), patience) {
            Err(_) if !tried.is_empty() => Err(first),
            done => done,
        }
    }
}

/// A connection to the first address that answers.
fn first_of(addresses: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, patience) {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                notice_silence(&tcp)?;
                return Ok(tcp);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A server that takes no connections has those that wait block.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it takes no connections",
        )),
        Err(e) => Err(e.into()),
    }
}

/// A machine that is off, or out of reach, sends no end.
fn notice_silence(tcp: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(tcp, SILENCE.as_millis() as u32)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(tcp, SILENCE / 8)?;
    sockopt::set_tcp_keepcnt(tcp, 4)?;
    Ok(())
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Place {
    /// This process makes them.
    Own(Route),
    /// Another one makes them.
    Passed(Connector, Address),
    /// There is this one, until it is taken.
    Made(Mutex<Option<OwnedFd>>),
}

impl Place {
    pub(crate) fn of(address: &Address, connector: Option<Connector>) -> Place {
        match connector {
            None => Place::Own(Route::to(address)),
            Some(connector) => Place::Passed(connector, address.clone()),
        }
    }

    /// Connects. Another process has a limit of its own, that of [`Route::connect`].
    pub(crate) fn connect(&self, patience: Duration) -> io::Result<OwnedFd> {
        match self {
            Place::Own(route) => route.connect(patience),
            Place::Passed(connector, address) => connector.0.connect(address),
            Place::Made(socket) => {
                let none = || io::Error::other("there is no other connection");
                socket.lock().take().ok_or_else(none)
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_name_that_means_another_address_is_followed() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (old, new) = (listen(), listen());
        let (was, is) = (old.local_addr().unwrap(), new.local_addr().unwrap());
        let route = Route::to(&"nbd://there:1/".parse().unwrap());
        let nobody = || Err(io::ErrorKind::NotFound.into());
        assert_eq!(
            route.connect_to(CONNECT, nobody).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let peer = |at| {
            route
                .connect_to(CONNECT, || Ok(vec![at]))
                .and_then(|s| s.peer_addr())
        };
        assert_eq!(peer(was).unwrap(), was);
        // As long as the old one answers nobody is asked.
        assert_eq!(peer(is).unwrap(), was);
        drop(old);
        // Nor again at once: a server that starts again is not waited for longer.
        assert_eq!(
            peer(is).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        route.known.lock().since = Instant::now().checked_sub(LOOKUP);
        // The old address is kept where nobody knows another.
        let refused = route.connect_to(CONNECT, nobody).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        route.known.lock().since = None;
        assert_eq!(peer(is).unwrap(), is);
        assert_eq!(peer(was).unwrap(), is);
    }
}
