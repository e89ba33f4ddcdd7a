//! A server that follows the protocol up to a chosen phase, and attacks then.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The phases of the protocol. `Read` to `Disconnect` are requests, the others are parts of the
/// handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Accept,
    Greeting,
    Tls,
    Structured,
    Go,
    Read,
    Write,
    Flush,
    Disconnect,
}

/// The attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// It neither answers nor reads.
    Silent,
    /// It answers, a byte now and then.
    Trickle,
    /// It answers without end.
    Flood,
    /// It refuses the export, with a text that holds terminal control characters (phase `Go`).
    Refuse,
}

/// A certificate authority, a certificate for `localhost`, and a directory with both.
pub(crate) struct Pki {
    dir: tempfile::TempDir,
    config: Arc<ServerConfig>,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let dir = tempfile::tempdir().unwrap();
        let openssl = |args: &str| {
            let mut command = Command::new("openssl");
            command.args(args.split(' ')).current_dir(dir.path());
            let status = command.stderr(Stdio::null()).status().unwrap();
            assert!(status.success(), "openssl {args}");
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout";
        openssl(&format!(
            "req -x509 {key} ca-key.pem -out ca-cert.pem -subj /CN=ca -days 2"
        ));
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("names"), "subjectAltName=DNS:localhost\n").unwrap();
        openssl(&format!(
            "req {key} server-key.pem -out server.csr -subj /CN=server"
        ));
        openssl(
            "x509 -req -in server.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out server-cert.pem",
        );
        let chain = CertificateDer::pem_file_iter(at("server-cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(at("server-key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        Pki {
            config: Arc::new(config),
            dir,
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

struct Shared {
    config: Option<Arc<ServerConfig>>,
    phase: Mutex<Phase>,
    attack: Attack,
    open: Mutex<Vec<UnixStream>>,
    is_over: AtomicBool,
    connections: AtomicU64,
    writes: AtomicU64,
}

pub(crate) struct Attacker {
    shared: Arc<Shared>,
    socket: PathBuf,
    pki: Option<PathBuf>,
    _dir: tempfile::TempDir,
    /// Connections that fill the queue of a server that accepts none.
    _waiting: Vec<UnixStream>,
}

impl Attacker {
    pub(crate) fn new(pki: Option<&Pki>, phase: Phase, attack: Attack) -> Attacker {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared {
            config: pki.map(|pki| Arc::clone(&pki.config)),
            phase: Mutex::new(phase),
            attack,
            open: Mutex::default(),
            is_over: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        });
        let mut waiting = Vec::new();
        if phase == Phase::Accept {
            rustix::net::listen(&listener, 0).unwrap();
            waiting.push(UnixStream::connect(&socket).unwrap());
        }
        let of = Arc::clone(&shared);
        thread::spawn(move || of.accept(&listener));
        Attacker {
            shared,
            socket,
            pki: pki.map(|pki| pki.path().to_owned()),
            _dir: dir,
            _waiting: waiting,
        }
    }

    pub(crate) fn address(&self) -> String {
        let socket = self.socket.display();
        match &self.pki {
            None => format!("nbd+unix:///?socket={socket}"),
            Some(pki) => format!(
                "nbds+unix:///?socket={socket}&tls-certificates={}&tls-hostname=localhost",
                pki.display()
            ),
        }
    }

    /// Closes the connections, and attacks in `phase` from now on.
    pub(crate) fn turn(&self, phase: Phase) {
        *self.shared.phase.lock() = phase;
        self.shared.hang_up();
    }

    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(SeqCst)
    }

    /// Number of write requests received.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.writes.load(SeqCst)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared.hang_up();
        if *self.shared.phase.lock() != Phase::Accept {
            let _ = UnixStream::connect(&self.socket);
        }
    }
}

trait Peer: Read + Write {}
impl<T: Read + Write> Peer for T {}

fn read<const N: usize>(peer: &mut dyn Peer) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    peer.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
    for number in [option, kind, data.len() as u32] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

impl Shared {
    fn hang_up(&self) {
        for stream in self.open.lock().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn pause(&self) {
        thread::sleep(Duration::from_millis(20));
    }

    fn accept(self: Arc<Self>, listener: &UnixListener) {
        while *self.phase.lock() == Phase::Accept {
            if self.is_over.load(SeqCst) {
                return;
            }
            self.pause();
        }
        for stream in listener.incoming().map_while(Result::ok) {
            if self.is_over.load(SeqCst) {
                return;
            }
            self.connections.fetch_add(1, SeqCst);
            self.open.lock().push(stream.try_clone().unwrap());
            let of = Arc::clone(&self);
            thread::spawn(move || drop(of.serve(stream)));
        }
    }

    /// Sends `bytes`, or attacks if `now` is the chosen phase.
    fn say(&self, peer: &mut dyn Peer, now: Phase, bytes: &[u8]) -> io::Result<()> {
        if *self.phase.lock() != now {
            peer.write_all(bytes)?;
            return peer.flush();
        }
        let trickle = bytes.iter().filter(|_| self.attack == Attack::Trickle);
        for byte in trickle {
            peer.write_all(&[*byte])?;
            peer.flush()?;
            thread::sleep(Duration::from_millis(60));
        }
        if self.attack == Attack::Flood {
            loop {
                peer.write_all(bytes)?;
                peer.flush()?;
            }
        }
        while !self.is_over.load(SeqCst) {
            self.pause();
        }
        Err(io::ErrorKind::Other.into())
    }

    fn serve(&self, mut raw: UnixStream) -> io::Result<()> {
        self.say(&mut raw, Phase::Greeting, b"NBDMAGICIHAVEOPT\0\x03")?;
        read::<4>(&mut raw)?;
        let Some(config) = &self.config else {
            return self.serve_export(&mut raw);
        };
        read::<16>(&mut raw)?;
        raw.write_all(&option_reply(5, 1, &[]))?;
        // The head of a record of 16 KiB, and some of it.
        let mut record = vec![0x16, 3, 3, 0x40, 0];
        record.resize(200, 2);
        if *self.phase.lock() == Phase::Tls {
            return self.say(&mut raw, Phase::Tls, &record);
        }
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        self.serve_export(&mut StreamOwned::new(tls, raw))
    }

    fn serve_export(&self, peer: &mut dyn Peer) -> io::Result<()> {
        loop {
            let head: [u8; 16] = read(peer)?;
            let len = u32::from_be_bytes(*head.last_chunk().unwrap());
            peer.read_exact(&mut vec![0; len as usize])?;
            if head[11] == 8 {
                self.say(peer, Phase::Structured, &option_reply(8, 1, &[]))?;
                continue;
            }
            let mut export = vec![0, 0];
            export.extend((64u64 << 20).to_be_bytes());
            // The flags: HAS_FLAGS, FLUSH and FUA.
            export.extend(13u16.to_be_bytes());
            if self.attack == Attack::Refuse {
                let said = "no\u{1b}]0;x\u{7}\r\n\u{9b}2J\u{202e}gpj";
                let said = said.repeat(1000);
                return peer.write_all(&option_reply(7, 0x8000_0002, said.as_bytes()));
            }
            self.say(peer, Phase::Go, &option_reply(7, 3, &export))?;
            peer.write_all(&option_reply(7, 1, &[]))?;
            peer.flush()?;
            break;
        }
        loop {
            self.serve_request(peer)?;
        }
    }

    fn serve_request(&self, peer: &mut dyn Peer) -> io::Result<()> {
        let head: [u8; 28] = read(peer)?;
        let len = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize;
        let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(&head[8..16]);
        let now = match head[7] {
            0 => Phase::Read,
            1 => Phase::Write,
            2 => Phase::Disconnect,
            _ => Phase::Flush,
        };
        match now {
            Phase::Write => {
                self.writes.fetch_add(1, SeqCst);
                if *self.phase.lock() != now {
                    peer.read_exact(&mut vec![0; len])?;
                }
            }
            Phase::Read if self.attack == Attack::Flood => {
                // An error for one part, in a reply that does not end.
                reply = b"\x66\x8e\x33\xef\0\0\x80\x01".to_vec();
                reply.extend(&head[8..16]);
                reply.extend(b"\0\0\0\x06\0\0\0\x05\0\0");
            }
            Phase::Read => reply.resize(16 + len, 0),
            _ => {}
        }
        self.say(peer, now, &reply)
    }
}
