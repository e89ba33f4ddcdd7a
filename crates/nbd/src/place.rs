//! The place of a server: the way in which this process gets connections to it.
//!
//! A process that may not connect (a mount's server in its sandbox) asks another process, which
//! knows the address, and receives the open socket.

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

/// Silence of the server's machine (not of its answers) after which it is lost.
const SILENCE: Duration = Duration::from_secs(20);
/// Time limit for making a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Minimum interval between look-ups of a host name: a look-up may take longer than the restart of
/// a server.
const LOOKUP: Duration = Duration::from_secs(10);

/// A maker of connections, for a process that makes none itself.
pub trait Connect: Send + Sync {
    /// A new connection to the server at `address`, as [`Route::connect`] makes them.
    ///
    /// # Errors
    /// The errors of [`Route::connect`]; or this address is not allowed.
    fn connect(&self, address: &Address) -> io::Result<OwnedFd>;
}

/// The maker of connections for this process.
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

/// The route to one server, for the process that connects. The addresses of a host name are looked
/// up before the first connection, and again when none of them answers.
#[derive(Debug)]
pub struct Route {
    endpoint: Endpoint,
    known: Mutex<Known>,
}

/// The addresses of a host name.
#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// The time of the look-up.
    since: Option<Instant>,
}

impl Route {
    /// A route to the server of `address`. The host name is not looked up yet.
    pub fn to(address: &Address) -> Route {
        Route {
            endpoint: address.endpoint.clone(),
            known: Mutex::default(),
        }
    }

    /// Connects. The time limit for each address is `patience`, at most 10 s. Over TCP, prolonged
    /// silence of the other machine ends the connection.
    ///
    /// # Errors
    /// No server answers, or the host name is unknown.
    pub fn connect(&self, patience: Duration) -> io::Result<OwnedFd> {
        // A limit of zero would mean no limit.
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
            // The old addresses stay.
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
            Ok(tcp) if is_to_itself(&tcp)? => last = io::ErrorKind::ConnectionRefused.into(),
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

/// Whether both ends of a connection are the same. While a server of this machine is away, the
/// kernel may choose its port for the connection's own end, and TCP connects that to itself.
fn is_to_itself(tcp: &TcpStream) -> io::Result<bool> {
    Ok(tcp.local_addr()? == tcp.peer_addr()?)
}

/// Connects to a Unix socket. The limit is needed, as connecting to a server that accepts no
/// connections blocks.
fn connect_unix(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it accepts no connections",
        )),
        Err(e) => Err(e.into()),
    }
}

/// Sets up detection of a silent peer: a machine that is off, or out of reach, does not close its
/// connections.
fn notice_silence(tcp: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(tcp, SILENCE.as_millis() as u32)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(tcp, SILENCE / 8)?;
    sockopt::set_tcp_keepcnt(tcp, 4)?;
    Ok(())
}

/// The source of connections.
#[derive(Debug)]
pub(crate) enum Place {
    /// This process makes them.
    Own(Route),
    /// Another process makes them.
    Passed(Connector, Address),
    /// One connection that was made in advance, until it is taken.
    Made(Mutex<Option<OwnedFd>>),
}

impl Place {
    pub(crate) fn of(address: &Address, connector: Option<Connector>) -> Place {
        match connector {
            None => Place::Own(Route::to(address)),
            Some(connector) => Place::Passed(connector, address.clone()),
        }
    }

    /// Connects. If another process connects it uses its own limit, that of [`Route::connect`].
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
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// An address of this process: on a shared one another program may get a port as it is freed.
    fn own_address() -> Ipv4Addr {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        Ipv4Addr::new(127, 77, high, low)
    }

    #[test]
    fn a_name_that_means_another_address_is_followed() {
        let listen = || TcpListener::bind((own_address(), 0)).unwrap();
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
        // While the old address answers there is no look-up.
        assert_eq!(peer(is).unwrap(), was);
        drop(old);
        // Nor is there one again at once: the restart of a server needs no look-up.
        assert_eq!(
            peer(is).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        route.known.lock().since = Instant::now().checked_sub(LOOKUP);
        // The old address is kept when the look-up finds no other.
        let refused = route.connect_to(CONNECT, nobody).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        route.known.lock().since = None;
        assert_eq!(peer(is).unwrap(), is);
        assert_eq!(peer(was).unwrap(), is);
    }

    #[test]
    fn a_connection_to_itself_is_seen() {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any = std::net::SocketAddr::from((own_address(), 0));
        rustix::net::bind(&socket, &any).unwrap();
        let own = rustix::net::getsockname(&socket).unwrap();
        rustix::net::connect(&socket, &own).unwrap();
        assert!(is_to_itself(&TcpStream::from(socket)).unwrap());
        let other = TcpListener::bind(any).unwrap();
        let tcp = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        assert!(!is_to_itself(&tcp).unwrap());
    }
}
