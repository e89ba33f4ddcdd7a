//! The server of a round, and the threads that make requests.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use stetfs_fuse::Offline;

use super::answers::Answers;
use super::apart::APART;
use super::generate::{Known, Maker};
use stetfs_testkit::fuse::{self as encode, Bytes, HEAD, Who, long, op, parts, word};

/// A deliberate fault of the server, which a round must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A lookup of one name panics.
    Panic,
    /// An unlink also makes a name, in the directory that no request names.
    Write,
    /// A request to make a directory gets two answers.
    Twice,
    /// The removal of an attribute is not done, and gets no answer.
    Silence,
}

/// The number of a request that gets an answer; `None` for other requests.
fn wants_answer(request: &[u8]) -> Option<u64> {
    match word(request, 4)? {
        op::FORGET | op::BATCH_FORGET => None,
        _ if request.len() < HEAD => None,
        _ => long(request, 8),
    }
}

/// The caller in requests of the kernel itself.
const NOBODY: Who = Who {
    uid: 0,
    gid: 0,
    pid: 0,
};

/// The request that begins a session.
pub(super) fn init(unique: u64) -> Vec<u8> {
    let flags = u32::MAX;
    let body = Bytes::default()
        .u32(7)
        .u32(45)
        .u32(1 << 20)
        .u32(flags)
        .u32(u32::MAX)
        .bytes(&[0; 44]);
    encode::request(op::INIT, unique, 0, NOBODY, &body)
}

/// The server, with or without a fault.
pub(super) struct Served {
    pub(super) offline: Offline,
    pub(super) fault: Option<Fault>,
    /// The node of the directory that no request names.
    pub(super) apart: u64,
}

/// A consumer of answers.
pub(super) type Sink = dyn Fn(&[u8]) + Send + Sync;

impl Served {
    /// Serves a request; with `ring` as if it came by io_uring.
    fn serve(&self, request: &[u8], ring: bool, alone: bool) {
        let (opcode, body) = (word(request, 4), request.get(HEAD..).unwrap_or_default());
        match (self.fault, opcode) {
            (Some(Fault::Panic), Some(op::LOOKUP)) if body == b"x1\0" => panic!("a fault"),
            (Some(Fault::Write), Some(op::UNLINK)) => {
                let name = Bytes::default().u32(0o755).u32(0).name(b"nobody asked");
                // Answers to requests with number 0 are ignored.
                let lookup = Bytes::default().name(APART.as_bytes());
                let mkdir = encode::request(op::MKDIR, 0, self.apart, NOBODY, &name);
                for more in [encode::request(op::LOOKUP, 0, 1, NOBODY, &lookup), mkdir] {
                    self.offline.serve(&more, alone);
                }
            }
            (Some(Fault::Twice), Some(op::MKDIR)) => self.offline.serve(request, alone),
            (Some(Fault::Silence), Some(op::REMOVEXATTR)) => return,
            _ => {}
        }
        // Requests without an answer never come by a ring.
        if ring && wants_answer(request).is_some() {
            let (head, operation, payload) = parts(request);
            self.offline.serve_parts(head, &operation, payload, alone);
        } else {
            self.offline.serve(request, alone);
        }
    }
}

/// The state that all threads of a round share.
pub(super) struct Shared {
    pub(super) served: Arc<Served>,
    pub(super) known: Mutex<Known>,
    pub(super) answers: Arc<Answers>,
    /// Number of answers that each request should get.
    pub(super) wanted: Mutex<BTreeMap<u64, usize>>,
    pub(super) timeout: Duration,
}

impl Shared {
    /// Makes `count` requests one after the other; number `destroyed` of them ends the session.
    pub(super) fn run(
        &self,
        rng: &mut fastrand::Rng,
        count: usize,
        destroyed: Option<usize>,
        log: &Mutex<Vec<Vec<u8>>>,
    ) -> Result<(), String> {
        // Another thread serves, so that a hang is noticed.
        let (give, take) = mpsc::channel::<(Vec<u8>, bool, bool)>();
        let (tell, told) = mpsc::channel();
        let served = Arc::clone(&self.served);
        let server = thread::spawn(move || {
            for (request, ring, alone) in take {
                let whole = catch_unwind(AssertUnwindSafe(|| served.serve(&request, ring, alone)));
                if tell.send(whole.is_ok()).is_err() {
                    return;
                }
            }
        });
        for i in 0..count {
            let mut known = self.known.lock().unwrap();
            let mut request = Maker {
                rng,
                known: &mut known,
            }
            .next();
            if destroyed == Some(i) && request.len() >= HEAD {
                request[4..8].copy_from_slice(&op::DESTROY.to_ne_bytes());
            }
            log.lock().unwrap().push(request.clone());
            let unique = wants_answer(&request);
            if let Some(unique) = unique.filter(|n| *n != 0) {
                *self.wanted.lock().unwrap().entry(unique).or_insert(0) += 1;
            }
            drop(known);
            give.send((request.clone(), rng.bool(), rng.bool()))
                .map_err(|e| e.to_string())?;
            match told.recv_timeout(self.timeout) {
                Ok(true) => {}
                Ok(false) => return Err("the request panicked".to_owned()),
                Err(_) => return Err(format!("not served within {:?}", self.timeout)),
            }
            let answer = unique.and_then(|n| self.answers.last(n));
            let mut known = self.known.lock().unwrap();
            known.learn(&request, &answer.unwrap_or_default());
        }
        drop(give);
        let ended = server.join();
        ended.map_err(|_| "the thread that serves panicked".to_owned())
    }
}
