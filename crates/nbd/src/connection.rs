//! One connection: requests out, replies in, several under way.
//!
//! There is no thread for replies. Who waits for one receives for all, until his own has come; then
//! another waiter does. So a process that has one thread only stays so.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::{Result, Trouble};
use crate::handshake::{self, Export};
use crate::place::Place;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::wire::{self, Command, Request, be16, be32, be64, chunk};

/// Bytes of an error's message at most.
const MESSAGE_MAX: u32 = 1 << 16;

pub(crate) struct Connection {
    stream: Arc<Stream>,
    is_structured: bool,
    /// A request goes out whole.
    sending: Mutex<()>,
    /// Who receives has it.
    incoming: Mutex<BufReader<Incoming>>,
    state: Mutex<State>,
    /// A reply came, or nobody receives.
    changed: Condvar,
}

struct Incoming(Arc<Stream>);

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.receive(buf)
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
    is_done: bool,
}

impl Connection {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// See [`handshake::shake`].
    pub(crate) fn open(place: &Place, tls: Option<&Tls>, export: &str) -> Result<(Self, Export)> {
        let mut stream = Stream::connect(place)?;
        let described = handshake::shake(&mut stream, tls, export)?;
        stream.be_patient()?;
        let stream = Arc::new(stream);
        let connection = Connection {
            incoming: Mutex::new(BufReader::new(Incoming(Arc::clone(&stream)))),
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
            let _ = self.stream.send(&leave.header(0), false);
        }
        self.close();
    }

    fn lose(&self, why: Trouble) -> Trouble {
        self.stream.shutdown();
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
        let sent = self.stream.send(&header, !data.is_empty());
        match sent.and_then(|()| self.stream.send(data, false)) {
            Ok(()) => Ok(cookie),
            Err(e) => Err(self.lose(e.into())),
        }
    }

    /// Waits for a reply: the bytes of a read.
    ///
    /// # Errors
    /// `Errno` if the server says so; `Lost`.
    pub(crate) fn wait(&self, cookie: u64) -> Result<Vec<u8>> {
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
            if state.is_receiving {
                self.changed.wait(&mut state);
                continue;
            }
            state.is_receiving = true;
            drop(state);
            if let Err(e) = self.receive() {
                self.lose(e);
            }
            state = self.state.lock();
            state.is_receiving = false;
            self.changed.notify_all();
        }
    }

    /// Receives a reply, or a chunk of one.
    fn receive(&self) -> Result<()> {
        let incoming = &mut *self.incoming.lock();
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
            chunk::NONE if len == 0 => {}
            chunk::OFFSET_DATA if len >= 8 => {
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
        self.got += len;
        range
            .filter(|_| self.command == Command::Read)
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
