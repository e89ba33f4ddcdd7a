//! A server of a network block device (NBD) in this process, with a socket of its own. It can die
//! at any request and come back.
//!
//! It implements the part of the protocol that a client without TLS needs: fixed newstyle, simple
//! and structured replies.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use parking_lot::{Mutex, RwLock};

use crate::Scratch;

/// Export flag: the flags are valid.
pub const HAS_FLAGS: u16 = 1;
/// Export flag: read-only.
pub const READ_ONLY: u16 = 2;
/// Export flag: flushes are supported.
pub const FLUSH: u16 = 4;
/// Export flag: writes can be durable by FUA.
pub const FUA: u16 = 8;
/// Export flag: trims are supported.
pub const TRIM: u16 = 32;
/// Export flag: ranges can be zeroed without sending zeroes.
pub const WRITE_ZEROES: u16 = 64;
/// Export flag: a flush on one connection covers all connections.
pub const MULTI_CONN: u16 = 256;

/// All flags that the server can offer.
pub const ALL: u16 = HAS_FLAGS | FLUSH | FUA | TRIM | WRITE_ZEROES | MULTI_CONN;

/// The result of a request; an error is an errno.
pub type Done = std::result::Result<(), u32>;

/// The disk behind a server.
pub trait Disk: Send + Sync + 'static {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Reads from byte `at` on.
    fn read(&self, at: u64, into: &mut [u8]) -> Done;

    /// Writes; with `fua` durable on return.
    fn write(&self, at: u64, data: &[u8], fua: bool) -> Done;

    /// Zeroes a range; with `fua` durable on return.
    fn zero(&self, at: u64, len: u64, fua: bool) -> Done;

    /// Trims a range, which is no longer needed.
    fn trim(&self, at: u64, len: u64) -> Done;

    /// Makes earlier writes durable.
    fn flush(&self) -> Done;

    /// The server dies, and the disk may forget writes that are not durable. No request is under
    /// way.
    fn forget(&self);
}

/// The behaviour of a server.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Export flags.
    pub flags: u16,
    /// Whether it offers structured replies.
    pub is_structured: bool,
    /// Smallest and largest request in bytes.
    pub blocks: (u32, u32),
    /// The size that it reports, if that is not the size of the disk.
    pub size: Option<u64>,
    /// Bytes that it sends in place of a reply to a read.
    pub nonsense: Option<&'static [u8]>,
    /// Whether it stays away after its next death.
    pub stays_away: bool,
    /// Number of requests within which it dies again after a death.
    pub again: Option<u64>,
}

impl Default for How {
    fn default() -> How {
        How {
            flags: ALL,
            is_structured: true,
            blocks: (1, 1 << 20),
            size: None,
            nonsense: None,
            stays_away: false,
            again: None,
        }
    }
}

struct Shared<D> {
    disk: Arc<D>,
    how: Mutex<How>,
    /// Open connections.
    open: Mutex<Vec<UnixStream>>,
    /// Held by each request, so that a death waits for requests under way.
    living: RwLock<()>,
    rng: Mutex<fastrand::Rng>,
    /// Requests until the server dies.
    left: Mutex<Option<u64>>,
    is_up: AtomicBool,
    is_over: AtomicBool,
    deaths: AtomicU64,
}

/// A server, which ends when it is dropped.
pub struct Server<D: Disk> {
    shared: Arc<Shared<D>>,
    socket: PathBuf,
    accepts: Option<JoinHandle<()>>,
    _scratch: Scratch,
}

impl<D: Disk> Server<D> {
    /// Serves a disk. The seed decides what a test leaves open: whether a death comes before or
    /// after a request, and how replies are cut.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn new(disk: Arc<D>, how: How, seed: u64) -> Result<Server<D>> {
        let scratch = Scratch::new("nbd")?;
        let socket = scratch.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        let shared = Arc::new(Shared {
            disk,
            how: Mutex::new(how),
            open: Mutex::default(),
            living: RwLock::new(()),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            left: Mutex::new(None),
            is_up: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            deaths: AtomicU64::new(0),
        });
        let of = Arc::clone(&shared);
        let accepts = thread::spawn(move || {
            for stream in listener.incoming().map_while(io::Result::ok) {
                if of.is_over.load(SeqCst) {
                    return;
                }
                let of = Arc::clone(&of);
                if of.is_up.load(SeqCst)
                    && let Ok(life) = of.opened(&stream)
                {
                    // An error on a connection only ends this connection.
                    thread::spawn(move || drop(of.serve(&stream, life)));
                }
            }
        });
        Ok(Server {
            shared,
            socket,
            accepts: Some(accepts),
            _scratch: scratch,
        })
    }

    /// The disk behind the server.
    pub fn disk(&self) -> &D {
        &self.shared.disk
    }

    /// The server's address.
    pub fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Makes the server die at the `n`th request from now on, before or after carrying it out.
    pub fn die_in(&self, n: u64) {
        *self.shared.left.lock() = Some(n);
    }

    /// Makes the server die now; the disk forgets writes.
    pub fn die(&self) {
        self.shared.die();
    }

    /// Sets whether connections are accepted.
    pub fn set_up(&self, is_up: bool) {
        self.shared.is_up.store(is_up, SeqCst);
    }

    /// Changes the server's behaviour from now on.
    pub fn behave(&self, change: impl FnOnce(&mut How)) {
        change(&mut self.shared.how.lock());
    }

    /// Number of deaths.
    pub fn deaths(&self) -> u64 {
        self.shared.deaths.load(SeqCst)
    }
}

impl<D: Disk> Drop for Server<D> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared.hang_up();
        let _ = UnixStream::connect(&self.socket);
        self.accepts.take().map(JoinHandle::join);
    }
}

fn read<const N: usize>(mut stream: &UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn dead() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

impl<D: Disk> Shared<D> {
    fn hang_up(&self) {
        let mut open = self.open.lock();
        let all = open.drain(..);
        all.for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    fn die(&self) {
        {
            let _dying = self.living.write();
            self.disk.forget();
            let how = *self.how.lock();
            *self.left.lock() = how.again.map(|most| self.rng.lock().u64(1..=most));
            self.deaths.fetch_add(1, SeqCst);
            if how.stays_away {
                self.is_up.store(false, SeqCst);
            }
        }
        self.hang_up();
    }

    /// Registers a connection. Gives the life of the server in which it was opened.
    fn opened(&self, stream: &UnixStream) -> io::Result<u64> {
        let _living = self.living.read();
        self.open.lock().push(stream.try_clone()?);
        Ok(self.deaths.load(SeqCst))
    }

    fn serve(&self, mut stream: &UnixStream, life: u64) -> io::Result<()> {
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        read::<4>(stream)?;
        loop {
            let head: [u8; 16] = read(stream)?;
            let option = number(&head[8..12]) as u32;
            let mut data = vec![0; number(&head[12..16]) as usize];
            stream.read_exact(&mut data)?;
            let how = *self.how.lock();
            let mut reply = |kind: u32, data: &[u8]| {
                let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
                bytes.extend(option.to_be_bytes());
                bytes.extend(kind.to_be_bytes());
                bytes.extend((data.len() as u32).to_be_bytes());
                bytes.extend(data);
                stream.write_all(&bytes)
            };
            match option {
                8 if how.is_structured => reply(1, &[])?,
                7 => {
                    let mut export = vec![0, 0];
                    export.extend(how.size.unwrap_or(self.disk.size()).to_be_bytes());
                    export.extend(how.flags.to_be_bytes());
                    reply(3, &export)?;
                    let mut blocks = vec![0, 3];
                    for size in [how.blocks.0, 4096.max(how.blocks.0), how.blocks.1] {
                        blocks.extend(size.to_be_bytes());
                    }
                    reply(3, &blocks)?;
                    reply(1, &[])?;
                    break;
                }
                _ => reply(1 << 31 | 1, b"what is that?")?,
            }
        }
        loop {
            self.request(stream, life)?;
        }
    }

    fn request(&self, mut stream: &UnixStream, life: u64) -> io::Result<()> {
        let head: [u8; 28] = read(stream)?;
        assert_eq!(head[..4], [0x25, 0x60, 0x95, 0x13], "a request's magic");
        let (is_fua, command) = (head[5] & 1 != 0, head[7]);
        let (at, len) = (number(&head[16..24]), number(&head[24..28]));
        let how = *self.how.lock();
        if matches!(command, 0 | 1) {
            let (min, max) = how.blocks;
            let fits = at.is_multiple_of(min.into()) && len <= max.into();
            assert!(fits, "{at} {len}");
        }
        let mut data = vec![
            0;
            if matches!(command, 0 | 1) {
                len as usize
            } else {
                0
            }
        ];
        if command == 1 {
            stream.read_exact(&mut data)?;
        }
        let dies = {
            let mut left = self.left.lock();
            let dies = left.is_some_and(|left| left <= 1);
            *left = left.map(|left| left.saturating_sub(1));
            dies
        };
        if dies && self.rng.lock().bool() {
            self.die();
            return Err(dead());
        }
        let done = {
            let _living = self.living.read();
            // A server that died does not carry out requests that it had read before.
            if life != self.deaths.load(SeqCst) {
                return Err(dead());
            }
            match command {
                0 => self.disk.read(at, &mut data),
                1 => self.disk.write(at, &data, is_fua),
                2 => return Err(dead()),
                3 => self.disk.flush(),
                4 => self.disk.trim(at, len),
                6 => self.disk.zero(at, len, is_fua),
                other => panic!("command {other}"),
            }
        };
        if dies {
            self.die();
            return Err(dead());
        }
        let errno = done.err().unwrap_or(0);
        let reply = match how.nonsense {
            Some(bytes) if command == 0 => bytes.to_vec(),
            _ if command == 0 && how.is_structured && errno == 0 => {
                chunks(&head[8..16], at, &data, &mut self.rng.lock())
            }
            _ if command == 0 && how.is_structured => {
                let mut reply = 0x668e_33efu32.to_be_bytes().to_vec();
                // The last chunk is an error: its errno, and an empty text.
                reply.extend([0, 1, 0x80, 1]);
                reply.extend(&head[8..16]);
                reply.extend(6u32.to_be_bytes());
                reply.extend(errno.to_be_bytes());
                reply.extend([0, 0]);
                reply
            }
            _ => {
                let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
                reply.extend(errno.to_be_bytes());
                reply.extend(&head[8..16]);
                if command == 0 && errno == 0 {
                    reply.extend(&data);
                }
                reply
            }
        };
        stream.write_all(&reply)
    }
}

/// The reply to a read as chunks in random order, with holes for zeroes.
fn chunks(cookie: &[u8], at: u64, data: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut starts: Vec<usize> = (0..data.len()).step_by(3000).collect();
    rng.shuffle(&mut starts);
    let mut all = Vec::new();
    let mut chunk = |flags: u16, kind: u16, payload: &[u8]| {
        all.extend(0x668e_33efu32.to_be_bytes());
        all.extend(flags.to_be_bytes());
        all.extend(kind.to_be_bytes());
        all.extend(cookie);
        all.extend((payload.len() as u32).to_be_bytes());
        all.extend(payload);
    };
    for start in starts {
        let part = &data[start..(start + 3000).min(data.len())];
        let mut payload = (at + start as u64).to_be_bytes().to_vec();
        match part.iter().all(|byte| *byte == 0) {
            true => {
                payload.extend((part.len() as u32).to_be_bytes());
                chunk(0, 2, &payload);
            }
            false => {
                payload.extend(part);
                chunk(0, 1, &payload);
            }
        }
    }
    chunk(1, 0, &[]);
    all
}
