//! The byte stream to a server, encrypted or not. One thread may send while another receives.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, sockopt};
use rustls::ClientConnection;

use crate::patience::Deadline;
use crate::place::Place;
use crate::tls::Tls;

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(place: &Place, patience: Duration) -> io::Result<Socket> {
        let socket = place.connect(patience)?;
        Ok(match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Socket::Unix(socket.into()),
            _ => Socket::Tcp(socket.into()),
        })
    }

    fn shutdown(&self) {
        // An error means that the connection is closed already.
        let _ = match self {
            Socket::Tcp(s) => s.shutdown(Shutdown::Both),
            Socket::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => s.set_nonblocking(on),
            Socket::Unix(s) => s.set_nonblocking(on),
        }
    }

    /// Waits until the socket is readable or writable, no longer than `left`. Returns the events
    /// that are ready, perhaps none.
    fn wait(&self, events: PollFlags, left: Option<Duration>) -> io::Result<PollFlags> {
        Deadline::check_waiting(left)?;
        let left = left.map(Timespec::try_from).transpose();
        let left = left.map_err(io::Error::other)?;
        let mut polled = [PollFd::new(self, events)];
        match poll(&mut polled, left.as_ref()) {
            Ok(_) => Ok(polled[0].revents()),
            Err(Errno::INTR) => Ok(PollFlags::empty()),
            Err(e) => Err(e.into()),
        }
    }

    /// Runs `act`, and waits for the socket while `act` would block.
    fn attend<T>(
        &self,
        events: PollFlags,
        until: &mut Deadline,
        act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        attend(until, &mut |_, left| self.wait(events, left).map(drop), act)
    }
}

/// A function that waits until the socket takes bytes, given the deadline and the remaining time
/// (`None`: unlimited).
pub(crate) type Wait<'a> = dyn FnMut(Deadline, Option<Duration>) -> io::Result<()> + 'a;

/// Runs `act` until it does not block, and calls `wait` meanwhile.
fn attend<T>(
    until: &mut Deadline,
    wait: &mut Wait<'_>,
    mut act: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        let left = until.left()?;
        match act() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait(*until, left)?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(s) => s.as_fd(),
            Socket::Unix(s) => s.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => (&*s).read(buf),
            Socket::Unix(s) => (&*s).read(buf),
        }
    }
}

impl Write for &Socket {
    /// Writes without raising SIGPIPE when the peer has closed: a library must not end its process.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, buf, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Mutex<ClientConnection>>,
}

impl Stream {
    pub(crate) fn connect(place: &Place, patience: Duration) -> io::Result<Stream> {
        let socket = Socket::connect(place, patience)?;
        socket.set_nonblocking(true)?;
        Ok(Stream { socket, tls: None })
    }

    /// Encrypts everything from here on: runs the TLS handshake.
    pub(crate) fn encrypt(&mut self, tls: &Tls, until: &mut Deadline) -> io::Result<()> {
        let mut connection = ClientConnection::new(tls.config.clone(), tls.name.clone())
            .map_err(io::Error::other)?;
        let socket = &self.socket;
        while connection.is_handshaking() {
            let events = match connection.wants_write() {
                true => PollFlags::OUT,
                false => PollFlags::IN,
            };
            socket.attend(events, until, || match connection.wants_write() {
                true => connection.write_tls(&mut &*socket).map(drop),
                false => absorb(&mut connection, socket).and_then(|n| match n {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(()),
                }),
            })?;
        }
        self.tls = Some(Mutex::new(connection));
        // The client sends the last message of the handshake.
        match &self.tls {
            Some(tls) => self.push(tls, until, &mut |_, left| {
                self.wait(PollFlags::OUT, left).map(drop)
            }),
            None => Ok(()),
        }
    }

    /// Waits for the socket: see [`Socket::wait`].
    pub(crate) fn wait(&self, events: PollFlags, left: Option<Duration>) -> io::Result<PollFlags> {
        self.socket.wait(events, left)
    }

    /// Whether data has arrived that polling the socket no longer shows.
    ///
    /// # Errors
    /// The data violates TLS.
    pub(crate) fn has_decrypted(&self) -> io::Result<bool> {
        let Some(tls) = &self.tls else {
            return Ok(false);
        };
        let state = tls.lock().process_new_packets();
        Ok(state.map_err(io::Error::other)?.plaintext_bytes_to_read() > 0)
    }

    /// Shuts the connection down for all threads, waiting ones included.
    pub(crate) fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// Sends all of `bytes`; with `more`, further data follows at once. `wait` is called while the
    /// socket takes no bytes. One thread at a time.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        more: bool,
        until: &mut Deadline,
        wait: &mut Wait<'_>,
    ) -> io::Result<()> {
        match &self.tls {
            None => self.send_plain(bytes, more, until, wait),
            Some(tls) => self.send_encrypted(tls, bytes, until, wait),
        }
    }

    fn send_plain(
        &self,
        mut bytes: &[u8],
        more: bool,
        until: &mut Deadline,
        wait: &mut Wait<'_>,
    ) -> io::Result<()> {
        let flags = match more {
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            false => SendFlags::NOSIGNAL,
        };
        while !bytes.is_empty() {
            let send = || Ok(rustix::net::send(&self.socket, bytes, flags)?);
            let sent = attend(until, wait, send)?;
            bytes = bytes.get(sent..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn send_encrypted(
        &self,
        tls: &Mutex<ClientConnection>,
        mut bytes: &[u8],
        until: &mut Deadline,
        wait: &mut Wait<'_>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = tls.lock().writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or(&[]);
            self.push(tls, until, wait)?;
        }
        Ok(())
    }

    /// Sends the pending encrypted data. The lock is not held while waiting, so another thread can
    /// receive.
    fn push(
        &self,
        tls: &Mutex<ClientConnection>,
        until: &mut Deadline,
        wait: &mut Wait<'_>,
    ) -> io::Result<()> {
        let mut is_sent = false;
        while !is_sent {
            is_sent = attend(until, wait, || {
                let mut connection = tls.lock();
                if connection.wants_write() {
                    connection.write_tls(&mut &self.socket)?;
                }
                Ok(!connection.wants_write())
            })?;
        }
        Ok(())
    }

    /// Receives some bytes; 0 at the end. One thread at a time.
    pub(crate) fn receive(&self, buf: &mut [u8], until: &mut Deadline) -> io::Result<usize> {
        let socket = &self.socket;
        let Some(tls) = &self.tls else {
            return socket.attend(PollFlags::IN, until, || (&*socket).read(buf));
        };
        loop {
            let found = socket.attend(PollFlags::IN, until, || {
                let mut connection = tls.lock();
                match connection.reader().read(buf) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done.map(Some),
                }
                match absorb(&mut connection, socket)? {
                    0 => Ok(Some(0)),
                    // Any number of encrypted bytes: try to read plain text again.
                    _ => Ok(None),
                }
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

/// Receives encrypted bytes and decrypts them. Returns their number; 0 at the end.
fn absorb(connection: &mut ClientConnection, socket: &Socket) -> io::Result<usize> {
    let n = connection.read_tls(&mut &*socket)?;
    connection.process_new_packets().map_err(io::Error::other)?;
    Ok(n)
}
