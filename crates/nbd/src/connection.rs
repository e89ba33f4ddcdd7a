//! One connection to a server: it sends requests and receives replies, several at a time.
//!
//! There is no thread for replies. One thread that waits for a reply receives for all threads until
//! its own reply has come; then another waiter takes over. A thread whose request the socket does
//! not take receives meanwhile. So a process with one thread stays single-threaded.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::PollFlags;

use crate::error::{Result, Trouble};
use crate::handshake::{self, Export};
use crate::patience::{Deadline, is_overdue};
use crate::place::Place;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::wire::{self, Command, Request, be16, be32, be64, chunk};

/// Maximum length of an error message in bytes.
const MESSAGE_MAX: u32 = 1 << 16;
/// Maximum number of errors in a reply; each may be for a part of the request.
const ERRORS_MAX: u32 = 64;
/// Time limit for taking leave of a server.
const LEAVE: Duration = Duration::from_secs(2);
/// Interval at which a thread that waits for the receiving thread checks its own deadline.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which a thread whose request the socket does not take checks whether another thread
/// still receives.
const LOOK_TO_SEND: Duration = Duration::from_millis(5);

pub(crate) struct Connection {
    stream: Arc<Stream>,
    is_structured: bool,
    /// Time limit for the server's answer to a request.
    patience: Duration,
    /// Held while a request is sent, so that requests go out whole.
    sending: Mutex<()>,
    /// Held by the receiving thread.
    incoming: Mutex<BufReader<Incoming>>,
    state: Mutex<State>,
    /// Signals that a reply came, or that no thread receives any more.
    changed: Condvar,
}

struct Incoming {
    stream: Arc<Stream>,
    /// The deadline of the receiving thread's own request.
    until: Deadline,
}

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.receive(buf, &mut self.until)
    }
}

#[derive(Default)]
struct State {
    /// Number of cookies given out.
    cookies: u64,
    waiting: HashMap<u64, Waiting>,
    is_receiving: bool,
    lost: Option<Trouble>,
}

/// A request that was sent and waits for its reply.
struct Waiting {
    command: Command,
    offset: u64,
    /// The buffer of a read. The receiving thread takes it out meanwhile.
    data: Vec<u8>,
    /// Bytes of it that have been received.
    got: u64,
    errno: Option<i32>,
    /// Number of errors received.
    errors: u32,
    is_done: bool,
}

impl Connection {
    /// Connects, and runs the handshake.
    ///
    /// # Errors
    /// See [`handshake::shake`].
    pub(crate) fn open(
        place: &Place,
        tls: Option<&Tls>,
        export: &str,
        patience: Duration,
    ) -> Result<(Self, Export)> {
        let mut stream = Stream::connect(place, patience)?;
        let described = handshake::shake(&mut stream, tls, export, patience)?;
        let stream = Arc::new(stream);
        let incoming = Incoming {
            stream: Arc::clone(&stream),
            until: Deadline::after(patience),
        };
        let connection = Connection {
            incoming: Mutex::new(BufReader::new(incoming)),
            patience,
            stream,
            is_structured: described.is_structured,
            sending: Mutex::new(()),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Ok((connection, described))
    }

    /// The reason for which the connection is lost, if it is.
    pub(crate) fn lost(&self) -> Option<Trouble> {
        self.state.lock().lost.clone()
    }

    /// Closes the connection; pending requests get no reply.
    pub(crate) fn close(&self) {
        self.lose(io::Error::from(io::ErrorKind::NotConnected).into());
    }

    /// Disconnects in an orderly way, when no request is pending any more.
    pub(crate) fn take_leave(&self) {
        let leave = Request {
            command: Command::Disconnect,
            fua: false,
            offset: 0,
            len: 0,
        };
        if self.lost().is_none() {
            let _turn = self.sending.lock();
            // Errors do not matter: the connection ends either way.
            let mut until = Deadline::after(self.patience.min(LEAVE));
            let mut wait = |until, left| self.wait_to_send(until, left);
            let _ = (self.stream).send(&leave.header(0), false, &mut until, &mut wait);
        }
        self.close();
    }

    /// Marks the connection as lost. If the server missed a deadline, no connection sends it
    /// further requests: it may still carry out the old ones, after newer ones.
    fn lose(&self, why: Trouble) -> Trouble {
        self.stream.shutdown();
        let why = match why {
            Trouble::Lost(e) if is_overdue(&e) => {
                let patience = self.patience;
                let what = format!("the server did not answer within {patience:?} (nbd_answer=)");
                Trouble::Stopped(what.into())
            }
            why => why,
        };
        let mut state = self.state.lock();
        let why = state.lost.get_or_insert(why).clone();
        self.changed.notify_all();
        why
    }

    /// Sends a request, followed by `data`. Returns the cookie to wait for the reply with.
    pub(crate) fn send(&self, request: &Request, data: &[u8]) -> Result<u64> {
        let waiting = Waiting {
            command: request.command,
            offset: request.offset,
            data: match request.command {
                Command::Read => vec![0; request.len as usize],
                _ => Vec::new(),
            },
            got: 0,
            errno: None,
            errors: 0,
            is_done: false,
        };
        let cookie = {
            let mut state = self.state.lock();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            state.cookies += 1;
            let cookie = state.cookies;
            state.waiting.insert(cookie, waiting);
            cookie
        };
        let _turn = self.sending.lock();
        let header = request.header(cookie);
        let mut until = Deadline::of_request(self.patience, request.len);
        let mut wait = |until, left| self.wait_to_send(until, left);
        let more = !data.is_empty();
        let sent = (self.stream).send(&header, more, &mut until, &mut wait);
        match sent.and_then(|()| self.stream.send(data, false, &mut until, &mut wait)) {
            Ok(()) => Ok(cookie),
            Err(e) => Err(self.lose(e.into())),
        }
    }

    /// Waits until the socket may take bytes. Receives replies meanwhile, unless another thread
    /// does: a server that answers in turn reads nothing while its replies are not received.
    fn wait_to_send(&self, until: Deadline, left: Option<Duration>) -> io::Result<()> {
        if mem::replace(&mut self.state.lock().is_receiving, true) {
            let left = left.map_or(LOOK_TO_SEND, |left| left.min(LOOK_TO_SEND));
            return self.stream.wait(PollFlags::OUT, Some(left)).map(drop);
        }
        let received = self.has_reply(left).and_then(|has_reply| {
            let receive = || self.receive(until).map_err(|e| self.lose(e).into_io());
            if has_reply { receive() } else { Ok(()) }
        });
        self.state.lock().is_receiving = false;
        self.changed.notify_all();
        received
    }

    /// Waits until a reply has arrived or the socket takes bytes. Returns whether to receive: a
    /// reply is there and the socket takes no bytes.
    fn has_reply(&self, left: Option<Duration>) -> io::Result<bool> {
        if !self.incoming.lock().buffer().is_empty() || self.stream.has_decrypted()? {
            return Ok(true);
        }
        let is = self.stream.wait(PollFlags::IN | PollFlags::OUT, left)?;
        Ok(is.contains(PollFlags::IN) && !is.contains(PollFlags::OUT))
    }

    /// Waits for the reply to a request of `len` bytes. Returns the data of a read.
    ///
    /// # Errors
    /// `Errno` if the server reports one; `Lost`; `Stopped` if it takes too long.
    pub(crate) fn wait(&self, cookie: u64, len: u32) -> Result<Vec<u8>> {
        let mut until = Deadline::of_request(self.patience, len);
        let mut state = self.state.lock();
        loop {
            let waiting = state.waiting.get(&cookie);
            if waiting.is_some_and(|w| w.is_done) {
                let done = state.waiting.remove(&cookie);
                let done =
                    done.ok_or_else(|| Trouble::nonsense("internal error: a reply was lost"))?;
                return done.errno.map_or(Ok(done.data), |e| Err(Trouble::Errno(e)));
            }
            if let Some(lost) = state.lost.clone() {
                state.waiting.remove(&cookie);
                return Err(lost);
            }
            let left = match until.left() {
                Ok(left) => left,
                Err(e) => {
                    drop(state);
                    self.lose(e.into());
                    state = self.state.lock();
                    continue;
                }
            };
            if state.is_receiving {
                match left {
                    None => self.changed.wait(&mut state),
                    Some(left) => drop(self.changed.wait_for(&mut state, left.max(LOOK))),
                }
                continue;
            }
            state.is_receiving = true;
            drop(state);
            if let Err(e) = self.receive(until) {
                self.lose(e);
            }
            state = self.state.lock();
            state.is_receiving = false;
            self.changed.notify_all();
        }
    }

    /// Receives a reply, or a chunk of one.
    fn receive(&self, until: Deadline) -> Result<()> {
        let incoming = &mut *self.incoming.lock();
        incoming.get_mut().until = until;
        let mut magic = [0; 4];
        incoming.read_exact(&mut magic)?;
        match u32::from_be_bytes(magic) {
            wire::SIMPLE_REPLY => self.receive_simple(incoming),
            wire::STRUCTURED_REPLY if self.is_structured => self.receive_chunk(incoming),
            other => Err(Trouble::nonsense(format!(
                "a reply with the wrong magic number {other:#x}"
            ))),
        }
    }

    fn receive_simple(&self, incoming: &mut impl Read) -> Result<()> {
        let mut head = [0; 12];
        incoming.read_exact(&mut head)?;
        let (errno, cookie) = (be32(&head, 0), be64(&head, 4, 8));
        let mut waiting = self.take(cookie)?;
        match errno {
            0 => {
                incoming.read_exact(&mut waiting.data)?;
                waiting.got = waiting.data.len() as u64;
            }
            errno => waiting.errno = Some(known(errno)?),
        }
        waiting.is_done = true;
        self.put_back(cookie, waiting);
        Ok(())
    }

    fn receive_chunk(&self, incoming: &mut impl Read) -> Result<()> {
        let mut head = [0; 16];
        incoming.read_exact(&mut head)?;
        let (flags, kind) = (be16(&head, 0), be16(&head, 2));
        let (cookie, len) = (be64(&head, 4, 8), be32(&head, 12));
        let mut waiting = self.take(cookie)?;
        match kind {
            // All other chunks bring a reply nearer to its end.
            chunk::NONE if len == 0 && flags & chunk::DONE != 0 => {}
            chunk::OFFSET_DATA if len > 8 => {
                let mut at = [0; 8];
                incoming.read_exact(&mut at)?;
                let part = waiting.part(u64::from_be_bytes(at), u64::from(len) - 8)?;
                incoming.read_exact(part)?;
            }
            chunk::OFFSET_HOLE if len == 12 => {
                let mut hole = [0; 12];
                incoming.read_exact(&mut hole)?;
                let part = waiting.part(be64(&hole, 0, 8), u64::from(be32(&hole, 8)))?;
                part.fill(0);
            }
            kind if kind >= chunk::ERROR && (4..=MESSAGE_MAX).contains(&len) => {
                let mut said = vec![0; len as usize];
                incoming.read_exact(&mut said)?;
                waiting.errors += 1;
                if waiting.errors > ERRORS_MAX {
                    return Err(Trouble::nonsense("too many errors for one request"));
                }
                waiting.errno.get_or_insert(known(be32(&said, 0))?);
            }
            _ => {
                let what = format!("a reply with an unexpected chunk: type {kind}, {len} bytes");
                return Err(Trouble::nonsense(what));
            }
        }
        if flags & chunk::DONE != 0 {
            if waiting.errno.is_none() && waiting.got != waiting.data.len() as u64 {
                return Err(Trouble::nonsense("the reply to a read is incomplete"));
            }
            waiting.is_done = true;
        }
        self.put_back(cookie, waiting);
        Ok(())
    }

    /// Takes out the request that a reply belongs to, for the receiving thread.
    fn take(&self, cookie: u64) -> Result<Waiting> {
        let taken = self.state.lock().waiting.remove(&cookie);
        let taken = taken.filter(|waiting| !waiting.is_done);
        taken.ok_or_else(|| {
            Trouble::nonsense(format!("a reply to an unknown request (cookie {cookie})"))
        })
    }

    fn put_back(&self, cookie: u64, waiting: Waiting) {
        self.state.lock().waiting.insert(cookie, waiting);
    }
}

impl Waiting {
    /// The part of the buffer for `len` bytes of the device from `offset` on.
    fn part(&mut self, offset: u64, len: u64) -> Result<&mut [u8]> {
        let begin = offset.checked_sub(self.offset);
        let range = begin.and_then(|begin| Some(begin as usize..begin.checked_add(len)? as usize));
        // No byte may come twice, and no part may be empty.
        self.got += len;
        let is_new = len > 0 && self.got <= self.data.len() as u64;
        range
            .filter(|_| self.command == Command::Read && is_new)
            .and_then(|range| self.data.get_mut(range))
            .ok_or_else(|| Trouble::nonsense("a reply with bytes that were not requested"))
    }
}

/// An errno of the protocol, which equals Linux's. A server that shuts down counts as lost.
fn known(errno: u32) -> Result<i32> {
    match errno {
        wire::ESHUTDOWN => Err(io::Error::other("the server is shutting down").into()),
        1 | 5 | 12 | 22 | 28 | 75 | 95 => Ok(errno as i32),
        _ => Ok(5),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use stetfs_testkit::nbd::{Disk, Done, How, Server};

    use super::*;
    use crate::address::Address;

    /// A request larger than any socket buffer, in bytes.
    const LARGE: u32 = 8 << 20;

    /// A disk that reads as zeroes whatever is written.
    struct Zeroes;

    impl Disk for Zeroes {
        fn size(&self) -> u64 {
            64 << 20
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Done {
            into.fill(0);
            Ok(())
        }

        fn write(&self, _: u64, _: &[u8], _: bool) -> Done {
            Ok(())
        }

        fn zero(&self, _: u64, _: u64, _: bool) -> Done {
            Ok(())
        }

        fn trim(&self, _: u64, _: u64) -> Done {
            Ok(())
        }

        fn flush(&self) -> Done {
            Ok(())
        }

        fn forget(&self) {}
    }

    /// A reader and a writer share a connection, and the reader does not wait for its reply yet.
    /// The server answers in turn.
    #[test]
    fn a_reply_that_nobody_waits_for_does_not_keep_requests_from_being_sent() {
        for is_structured in [false, true] {
            let how = How {
                is_structured,
                blocks: (1, LARGE),
                ..How::default()
            };
            let server = Server::new(Arc::new(Zeroes), how, 1).unwrap();
            let address: Address = server.address().parse().unwrap();
            let place = Place::of(&address, None);
            let patience = Duration::from_secs(20);
            let (connection, _) = Connection::open(&place, None, "", patience).unwrap();
            let request = |command| Request {
                command,
                fua: false,
                offset: 0,
                len: LARGE,
            };
            let data = vec![1; LARGE as usize];
            let read = connection.send(&request(Command::Read), &[]).unwrap();
            let write = connection.send(&request(Command::Write), &data).unwrap();
            assert_eq!(connection.wait(write, LARGE).unwrap(), []);
            let found = connection.wait(read, LARGE).unwrap();
            assert!(found.len() == LARGE as usize && found.iter().all(|byte| *byte == 0));
        }
    }
}
