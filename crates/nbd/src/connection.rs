//! One connection: requests out, replies in, several under way.
//!
//! There is no thread for replies. Who waits for one receives for all, until his own has come; then
//! another waiter does. So a process that has one thread only stays so.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Result, Trouble};
use crate::handshake::{self, Export};
use crate::patience::{Deadline, is_overdue};
use crate::place::Place;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::wire::{self, Command, Request, be16, be32, be64, chunk};

/// Bytes of an error's message at most.
const MESSAGE_MAX: u32 = 1 << 16;
/// Errors of a reply at most; each may be for a part of what was asked for.
const ERRORS_MAX: u32 = 64;
/// A server that is left is not waited for.
const LEAVE: Duration = Duration::from_secs(2);
/// A thread that waits for another one's receiving looks at its deadline so often.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Connection {
    stream: Arc<Stream>,
    is_structured: bool,
    /// How long the server may take to answer.
    patience: Duration,
    /// A request goes out whole.
    sending: Mutex<()>,
    /// Who receives has it.
    incoming: Mutex<BufReader<Incoming>>,
    state: Mutex<State>,
    /// A reply came, or nobody receives.
    changed: Condvar,
}

struct Incoming {
    stream: Arc<Stream>,
    /// Of the request whose thread receives.
    until: Deadline,
}

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.receive(buf, &mut self.until)
    }
}

#[derive(Default)]
struct State {
    /// Cookies given out.
    cookies: u64,
    waiting: HashMap<u64, Waiting>,
    is_receiving: bool,
    lost: Option<Trouble>,
}

/// A request that was sent.
struct Waiting {
    command: Command,
    offset: u64,
    /// What is read. Who receives it has taken it meanwhile.
    data: Vec<u8>,
    /// Bytes of it that came.
    got: u64,
    errno: Option<i32>,
    /// Errors that came.
    errors: u32,
    is_done: bool,
}

impl Connection {
    /// Connects and shakes hands.
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

    /// Why it is lost, if it is.
    pub(crate) fn lost(&self) -> Option<Trouble> {
        self.state.lock().lost.clone()
    }

    /// Ends it; who waits for a reply gets none.
    pub(crate) fn close(&self) {
        self.lose(io::Error::from(io::ErrorKind::NotConnected).into());
    }

    /// Takes leave of the server, when nothing is under way any more.
    pub(crate) fn take_leave(&self) {
        let leave = Request {
            command: Command::Disconnect,
            fua: false,
            offset: 0,
            len: 0,
        };
        if self.lost().is_none() {
            let _turn = self.sending.lock();
            // It is over either way.
            let mut until = Deadline::after(self.patience.min(LEAVE));
            let _ = self.stream.send(&leave.header(0), false, &mut until);
        }
        self.close();
    }

    /// A server that did not answer in time is not asked again, by no connection: it may still
    /// carry out what it was asked for, after what is newer.
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

    /// Sends a request, and `data` behind it. The reply is to be waited for by the cookie.
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
        let sent = self.stream.send(&header, !data.is_empty(), &mut until);
        match sent.and_then(|()| self.stream.send(data, false, &mut until)) {
            Ok(()) => Ok(cookie),
            Err(e) => Err(self.lose(e.into())),
        }
    }

    /// Waits for the reply to a request of `len` bytes: the bytes of a read.
    ///
    /// # Errors
    /// `Errno` if the server says so; `Lost`; `Stopped` if it takes too long.
    pub(crate) fn wait(&self, cookie: u64, len: u32) -> Result<Vec<u8>> {
        let mut until = Deadline::of_request(self.patience, len);
        let mut state = self.state.lock();
        loop {
            let waiting = state.waiting.get(&cookie);
            if waiting.is_some_and(|w| w.is_done) {
                let done = state.waiting.remove(&cookie);
                let done = done.ok_or_else(|| Trouble::nonsense("a reply that is gone"))?;
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
            other => Err(Trouble::nonsense(format!("a reply that begins {other:#x}"))),
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
            // All others bring a reply nearer to its end.
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
                    return Err(Trouble::nonsense("errors of one request without end"));
                }
                waiting.errno.get_or_insert(known(be32(&said, 0))?);
            }
            _ => {
                let what = format!("a chunk of type {kind} and {len} bytes");
                return Err(Trouble::nonsense(what));
            }
        }
        if flags & chunk::DONE != 0 {
            if waiting.errno.is_none() && waiting.got != waiting.data.len() as u64 {
                return Err(Trouble::nonsense("a read that ends early"));
            }
            waiting.is_done = true;
        }
        self.put_back(cookie, waiting);
        Ok(())
    }

    /// The request that a reply is for, for who receives.
    fn take(&self, cookie: u64) -> Result<Waiting> {
        let taken = self.state.lock().waiting.remove(&cookie);
        let taken = taken.filter(|waiting| !waiting.is_done);
        taken.ok_or_else(|| Trouble::nonsense(format!("a reply to nothing (cookie {cookie})")))
    }

    fn put_back(&self, cookie: u64, waiting: Waiting) {
        self.state.lock().waiting.insert(cookie, waiting);
    }
}

impl Waiting {
    /// Where the bytes from `offset` of the device on go.
    fn part(&mut self, offset: u64, len: u64) -> Result<&mut [u8]> {
        let begin = offset.checked_sub(self.offset);
        let range = begin.and_then(|begin| Some(begin as usize..begin.checked_add(len)? as usize));
        // Nothing may come twice, nor nothing at all.
        self.got += len;
        let is_new = len > 0 && self.got <= self.data.len() as u64;
        range
            .filter(|_| self.command == Command::Read && is_new)
            .and_then(|range| self.data.get_mut(range))
            .ok_or_else(|| Trouble::nonsense("bytes that were not asked for"))
    }
}

/// An errno of the protocol, which are Linux' own. One that is going away is as good as gone.
fn known(errno: u32) -> Result<i32> {
    match errno {
        wire::ESHUTDOWN => Err(io::Error::other("the server is shutting down").into()),
        1 | 5 | 12 | 22 | 28 | 75 | 95 => Ok(errno as i32),
        _ => Ok(5),
    }
}
