//! A server in memory with a volatile cache, which dies when it is told to, and loses what was not
//! flushed.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use stetfs_nbd::{NbdDevice, NbdOptions};

/// READ_ONLY, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, and the flag that there are flags.
pub(crate) const READ_ONLY: u16 = 2;
pub(crate) const FLUSH: u16 = 4;
pub(crate) const FUA: u16 = 8;
pub(crate) const MULTI_CONN: u16 = 256;
pub(crate) const ALL: u16 = 1 | FLUSH | FUA | 32 | 64 | MULTI_CONN;

/// How it behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) flags: u16,
    pub(crate) is_structured: bool,
    pub(crate) blocks: (u32, u32),
    /// What it says its size is, if not what it has.
    pub(crate) size: Option<u64>,
    /// It answers a read with these bytes in place of a reply.
    pub(crate) nonsense: Option<&'static [u8]>,
    /// It answers each write with this errno.
    pub(crate) write_errno: u32,
    /// It answers each flush with this errno, and forgets what was not durable.
    pub(crate) flush_errno: u32,
}

impl Default for How {
    fn default() -> How {
        How {
            flags: ALL,
            is_structured: true,
            blocks: (1, 1 << 20),
            size: None,
            nonsense: None,
            write_errno: 0,
            flush_errno: 0,
        }
    }
}

struct Disk {
    now: Vec<u8>,
    durable: Vec<u8>,
    rng: fastrand::Rng,
    /// Requests until it dies.
    left: Option<u64>,
}

pub(crate) struct Shared {
    disk: Mutex<Disk>,
    how: Mutex<How>,
    open: Mutex<Vec<UnixStream>>,
    is_up: AtomicBool,
    is_over: AtomicBool,
    deaths: AtomicU64,
    /// Flushes it was asked for.
    pub(crate) flushes: AtomicU64,
}

pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    socket: PathBuf,
    accepts: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Server {
    pub(crate) fn new(size: usize, how: How, seed: u64) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared {
            disk: Mutex::new(Disk {
                now: vec![0; size],
                durable: vec![0; size],
                rng: fastrand::Rng::with_seed(seed),
                left: None,
            }),
            how: Mutex::new(how),
            open: Mutex::default(),
            is_up: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            deaths: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        });
        let of = Arc::clone(&shared);
        let accepts = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of.is_over.load(SeqCst) {
                    return;
                }
                let of = Arc::clone(&of);
                if of.is_up.load(SeqCst) {
                    let life = of.opened(&stream);
                    // A connection that ends, ends.
                    thread::spawn(move || drop(of.serve(&stream, life)));
                }
            }
        });
        Server {
            shared,
            socket,
            accepts: Some(accepts),
            _dir: dir,
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    pub(crate) fn open(&self, options: NbdOptions) -> NbdDevice {
        self.try_open(options).unwrap()
    }

    pub(crate) fn try_open(&self, options: NbdOptions) -> stetfs_block::Result<NbdDevice> {
        NbdDevice::open(Path::new(&self.address()), options)
    }

    /// It dies at the `n`th request from now on.
    pub(crate) fn die_in(&self, n: u64) {
        self.shared.disk.lock().left = Some(n);
    }

    /// Whether connections are taken.
    pub(crate) fn set_up(&self, is_up: bool) {
        self.shared.is_up.store(is_up, SeqCst);
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut How)) {
        change(&mut self.shared.how.lock());
    }

    pub(crate) fn deaths(&self) -> u64 {
        self.shared.deaths.load(SeqCst)
    }

    /// Loses what was not flushed, as a machine does whose power fails: of each sector, or not.
    pub(crate) fn die(&self) {
        self.shared.die(&mut self.shared.disk.lock());
    }

    /// What is durable.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.shared.disk.lock().durable.clone()
    }

    /// Somebody else writes.
    pub(crate) fn overwrite(&self, at: usize, bytes: &[u8]) {
        let disk = &mut *self.shared.disk.lock();
        for content in [&mut disk.now, &mut disk.durable] {
            content[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared
            .open
            .lock()
            .iter()
            .for_each(|s| drop(s.shutdown(Shutdown::Both)));
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

impl Shared {
    fn die(&self, disk: &mut Disk) {
        for at in (0..disk.now.len()).step_by(512) {
            let sector = at..(at + 512).min(disk.now.len());
            match disk.rng.bool() {
                true => disk.durable[sector.clone()].copy_from_slice(&disk.now[sector]),
                false => disk.now[sector.clone()].copy_from_slice(&disk.durable[sector]),
            }
        }
        disk.left = None;
        let mut open = self.open.lock();
        self.deaths.fetch_add(1, SeqCst);
        open.drain(..)
            .for_each(|s| drop(s.shutdown(Shutdown::Both)));
    }

    /// Notes a connection, and in which of its lives the server has it.
    fn opened(&self, stream: &UnixStream) -> u64 {
        let mut open = self.open.lock();
        open.push(stream.try_clone().unwrap());
        self.deaths.load(SeqCst)
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
                    let size = how.size.unwrap_or(self.disk.lock().now.len() as u64);
                    let mut export = vec![0, 0];
                    export.extend(size.to_be_bytes());
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
        assert_eq!(head[..4], [0x25, 0x60, 0x95, 0x13]);
        let (is_fua, command) = (head[5] & 1 != 0, head[7]);
        let (at, len) = (
            number(&head[16..24]) as usize,
            number(&head[24..28]) as usize,
        );
        let how = *self.how.lock();
        let (min, max) = how.blocks;
        if matches!(command, 0 | 1) {
            assert!(
                at.is_multiple_of(min as usize) && len <= max as usize,
                "{at} {len}"
            );
        }
        let mut data = vec![0; if command == 1 { len } else { 0 }];
        stream.read_exact(&mut data)?;
        let disk = &mut *self.disk.lock();
        // Who died carries out nothing that he had read before.
        if life != self.deaths.load(SeqCst) {
            return Err(io::ErrorKind::Other.into());
        }
        let dies = disk.left.is_some_and(|left| left <= 1);
        disk.left = disk.left.map(|left| left.saturating_sub(1));
        // It may die before it has done it, or after.
        if dies && disk.rng.bool() {
            self.die(disk);
            return Err(io::ErrorKind::Other.into());
        }
        let errno = match command {
            1 => how.write_errno,
            3 => how.flush_errno,
            _ => 0,
        };
        match command {
            3 if errno != 0 => disk.now = disk.durable.clone(),
            _ if errno != 0 => {}
            0 => data = disk.now[at..at + len].to_vec(),
            1 => disk.now[at..at + len].copy_from_slice(&data),
            2 => return Err(io::ErrorKind::Other.into()),
            3 => {
                disk.durable = disk.now.clone();
                self.flushes.fetch_add(1, SeqCst);
            }
            // Of what was trimmed anything may be there.
            4 if disk.rng.bool() => disk.now[at..at + len].fill(0),
            4 => {}
            6 => disk.now[at..at + len].fill(0),
            other => panic!("command {other}"),
        }
        if is_fua && errno == 0 {
            let now = disk.now[at..at + len].to_vec();
            disk.durable[at..at + len].copy_from_slice(&now);
        }
        if dies {
            self.die(disk);
            return Err(io::ErrorKind::Other.into());
        }
        let reply = match how.nonsense {
            Some(bytes) if command == 0 => bytes.to_vec(),
            _ if command == 0 && how.is_structured => {
                chunks(&head[8..16], at, &data, &mut disk.rng)
            }
            _ => {
                let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
                reply.extend(errno.to_be_bytes());
                reply.extend(&head[8..16]);
                if command == 0 {
                    reply.extend(&data);
                }
                reply
            }
        };
        stream.write_all(&reply)
    }
}

/// A read's reply in pieces, in any order, holes where there are zeroes.
fn chunks(cookie: &[u8], at: usize, data: &[u8], rng: &mut fastrand::Rng) -> Vec<u8> {
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
        let mut payload = ((at + start) as u64).to_be_bytes().to_vec();
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
