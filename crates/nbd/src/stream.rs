//! Bytes to a server and back, encrypted or not. One thread may send while another receives.

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
        // One that is gone already is what was wanted.
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

    /// Waits until it can be read or written, no longer than `left`.
    fn wait(&self, events: PollFlags, left: Option<Duration>) -> io::Result<()> {
        Deadline::check_waiting(left)?;
        let left = left.map(Timespec::try_from).transpose();
        let left = left.map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(self, events)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Does something that would block as soon as it does not.
    fn attend<T>(
        &self,
        events: PollFlags,
        until: &mut Deadline,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = until.left()?;
            match act() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(events, left)?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
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
    /// Without a signal where nobody reads any more: a library must not end its process.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, buf, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection's bytes.
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

    /// From here on all is encrypted.
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
        // The last of the handshake is ours.
        match &self.tls {
            Some(tls) => self.push(tls, until),
            None => Ok(()),
        }
    }

    /// Nobody gets anything from it any more, whoever waits.
    pub(crate) fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// Sends all of it; `more` follows at once. One thread at a time.
    pub(crate) fn send(&self, bytes: &[u8], more: bool, until: &mut Deadline) -> io::Result<()> {
        match &self.tls {
            None => self.send_plain(bytes, more, until),
            Some(tls) => self.send_encrypted(tls, bytes, until),
        }
    }

    fn send_plain(&self, mut bytes: &[u8], more: bool, until: &mut Deadline) -> io::Result<()> {
        let flags = match more {
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            false => SendFlags::NOSIGNAL,
        };
        while !bytes.is_empty() {
            let send = || Ok(rustix::net::send(&self.socket, bytes, flags)?);
            let sent = self.socket.attend(PollFlags::OUT, until, send)?;
            bytes = bytes.get(sent..).unwrap_or(&[]);
        }
        Ok(())
    }

    fn send_encrypted(
        &self,
        tls: &Mutex<ClientConnection>,
        mut bytes: &[u8],
        until: &mut Deadline,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = tls.lock().writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or(&[]);
            self.push(tls, until)?;
        }
        Ok(())
    }

    /// Sends what is encrypted. Who receives is not kept from it meanwhile.
    fn push(&self, tls: &Mutex<ClientConnection>, until: &mut Deadline) -> io::Result<()> {
        let mut is_sent = false;
        while !is_sent {
            is_sent = self.socket.attend(PollFlags::OUT, until, || {
                let mut connection = tls.lock();
                if connection.wants_write() {
                    connection.write_tls(&mut &self.socket)?;
                }
                Ok(!connection.wants_write())
            })?;
        }
        Ok(())
    }

    /// Receives something; 0 at the end. One thread at a time.
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
                    // Whatever it was.
                    _ => Ok(None),
                }
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

/// Takes in encrypted bytes: how many; 0 at the end.
fn absorb(connection: &mut ClientConnection, socket: &Socket) -> io::Result<usize> {
    let n = connection.read_tls(&mut &*socket)?;
    connection.process_new_packets().map_err(io::Error::other)?;
    Ok(n)
}
