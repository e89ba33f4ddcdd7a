//! Bytes to a server and back, encrypted or not. One thread may send while another receives.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, sockopt};
use rustls::ClientConnection;

use crate::place::{CONNECT, Place};
use crate::tls::Tls;

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(place: &Place) -> io::Result<Socket> {
        let socket = place.connect()?;
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

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(s) => s.set_read_timeout(timeout),
            Socket::Unix(s) => s.set_read_timeout(timeout),
        }
    }

    fn wait(&self, events: PollFlags) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(self, events)], None) {
                Err(Errno::INTR) => {}
                done => return done.map(drop).map_err(Into::into),
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
    pub(crate) fn connect(place: &Place) -> io::Result<Stream> {
        let socket = Socket::connect(place)?;
        // While hands are shaken somebody has to answer; later a disk may take its time.
        socket.set_timeout(Some(CONNECT))?;
        Ok(Stream { socket, tls: None })
    }

    /// Hands are shaken: from now on an answer may take as long as it takes.
    pub(crate) fn be_patient(&self) -> io::Result<()> {
        self.socket.set_timeout(None)
    }

    /// From here on all is encrypted.
    pub(crate) fn encrypt(&mut self, tls: &Tls) -> io::Result<()> {
        let mut connection = ClientConnection::new(tls.config.clone(), tls.name.clone())
            .map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &self.socket)?;
        }
        self.socket.set_nonblocking(true)?;
        self.tls = Some(Mutex::new(connection));
        Ok(())
    }

    /// Nobody gets anything from it any more, whoever waits.
    pub(crate) fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// Sends all of it; `more` follows at once. One thread at a time.
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<()> {
        match &self.tls {
            None => self.send_plain(bytes, more),
            Some(tls) => self.send_encrypted(tls, bytes),
        }
    }

    fn send_plain(&self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        let flags = match more {
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            false => SendFlags::NOSIGNAL,
        };
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or(&[]),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn send_encrypted(&self, tls: &Mutex<ClientConnection>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = tls.lock().writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or(&[]);
            self.push(tls)?;
        }
        Ok(())
    }

    /// Sends what is encrypted. Who receives is not kept from it meanwhile.
    fn push(&self, tls: &Mutex<ClientConnection>) -> io::Result<()> {
        loop {
            {
                let mut connection = tls.lock();
                if !connection.wants_write() {
                    return Ok(());
                }
                match connection.write_tls(&mut &self.socket) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => {
                        done?;
                        continue;
                    }
                }
            }
            self.socket.wait(PollFlags::OUT)?;
        }
    }

    /// Receives something; 0 at the end. One thread at a time.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => loop {
                match (&self.socket).read(buf) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    done => return done,
                }
            },
            Some(tls) => self.receive_encrypted(tls, buf),
        }
    }

    fn receive_encrypted(
        &self,
        tls: &Mutex<ClientConnection>,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            {
                let mut connection = tls.lock();
                match connection.reader().read(buf) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
                match connection.read_tls(&mut &self.socket) {
                    Ok(0) => return Ok(0),
                    Ok(_) => {
                        connection.process_new_packets().map_err(io::Error::other)?;
                        continue;
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
            }
            self.socket.wait(PollFlags::IN)?;
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf)
    }
}
