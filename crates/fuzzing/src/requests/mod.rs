//! Requests that no kernel sends, against the server: of lengths that lie, about nodes that were
//! never looked up or are gone, forgotten too often, with names that cannot be; as they come by
//! `/dev/fuse` and by io_uring, of one thread or of several at once. A round is a session in which
//! a seed decides all, or, of several threads, what each asks. What must hold then: nothing panics;
//! each request that wants an answer gets exactly one, soon; the volume can be closed and has no
//! fault; and a directory that no request named is as it was.

mod encode;
mod generate;
mod op;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use stetfs::low::{Ctx, Fs, MemDevice, Preset, ROOT_INO, Volume, VolumeOptions, preset};
use stetfs_crash::tree::{Seen, SeenNode};
use stetfs_crash::volume::{base, fsck, options};
use stetfs_fuse::{Offline, Opens, VolumeFsOptions};
use stetfs_testkit::Scratch;

use self::encode::{Bytes, HEAD, Who, long, parts, request, word};
use self::generate::{Known, Maker};

/// Answers are waited for so long; others may keep the machine busy.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Requests of a round.
const REQUESTS: usize = 400;
/// The directory that no request names.
const APART: &str = "kept apart from all requests";

/// Panics of this process, of whatever thread.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Requests that were served.
    pub requests: usize,
    /// Answers without an error.
    pub succeeded: usize,
}

/// What went wrong, with all that it takes to see it again.
#[derive(Debug)]
pub struct Failure {
    /// For people.
    pub what: String,
    /// All requests, as they were served.
    pub requests: Vec<Vec<u8>>,
}

/// Answers as they come, by the number of their request.
#[derive(Default)]
struct Answers(Mutex<BTreeMap<u64, Vec<Vec<u8>>>>);

impl Answers {
    fn put(&self, answer: &[u8]) {
        // Notifications have the number 0.
        if let Some(unique) = long(answer, 8).filter(|n| *n != 0) {
            let mut all = self.0.lock().unwrap();
            all.entry(unique).or_default().push(answer.to_vec());
        }
    }

    fn last(&self, unique: u64) -> Option<Vec<u8>> {
        self.0.lock().unwrap().get(&unique)?.last().cloned()
    }

    fn succeeded(&self) -> usize {
        let all = self.0.lock().unwrap();
        let whole = all.values().flatten().filter(|a| word(a, 4) == Some(0));
        whole.count()
    }

    fn counts(&self) -> BTreeMap<u64, usize> {
        let all = self.0.lock().unwrap();
        all.iter()
            .map(|(unique, all)| (*unique, all.len()))
            .collect()
    }
}

/// A volume with blocks of `block` bytes and something in the directory that is kept apart.
fn volume(block: u32) -> Arc<MemDevice> {
    static MADE: OnceLock<[Arc<MemDevice>; 2]> = OnceLock::new();
    let make = |block| {
        let device = Arc::new(base(block).unwrap().image.fork());
        let fs = Fs::open(device.clone(), options(preset::ORDERED)).unwrap();
        let ctx = Ctx::default();
        let dir = fs
            .mkdir(&ctx, ROOT_INO, APART.as_bytes(), 0o755, 0)
            .unwrap()
            .ino;
        for (name, len) in [("one", 10), ("two", 5000), ("three", 200_000)] {
            let (attr, file) = fs
                .create(&ctx, dir, name.as_bytes(), 0o644, 0, libc::O_RDWR)
                .unwrap();
            fs.write(&ctx, &file, 0, &vec![b'k'; len], false).unwrap();
            drop(file);
            fs.forget(attr.ino, 1);
        }
        fs.forget(dir, 1);
        fs.unmount().unwrap();
        device
    };
    let made = MADE.get_or_init(|| [make(1024), make(4096)]);
    Arc::new(made[usize::from(block != 1024)].fork())
}

/// What is in the directory that is kept apart, and itself.
fn kept(device: &Arc<MemDevice>) -> Result<BTreeMap<u32, SeenNode>, String> {
    let fs = Fs::open(device.clone(), options(preset::ORDERED)).map_err(|e| e.to_string())?;
    let seen = Seen::capture(&fs)?;
    fs.unmount().map_err(|e| e.to_string())?;
    let root = seen.nodes.get(&ROOT_INO).ok_or("no root")?;
    let dir = *root
        .entries
        .get(APART)
        .ok_or("the directory that no request named is gone")?;
    let below = seen
        .nodes
        .get(&dir)
        .ok_or("it leads nowhere")?
        .entries
        .values();
    let inos = BTreeSet::from_iter(below.copied().chain([dir]));
    Ok(seen
        .nodes
        .into_iter()
        .filter(|(ino, _)| inos.contains(ino))
        .collect())
}

/// The requests that get an answer, or do not.
fn wants_answer(request: &[u8]) -> Option<u64> {
    match word(request, 4)? {
        op::FORGET | op::BATCH_FORGET => None,
        _ if request.len() < HEAD => None,
        _ => long(request, 8),
    }
}

/// A request of the kernel's own.
const NOBODY: Who = Who {
    uid: 0,
    gid: 0,
    pid: 0,
};

/// The request that a session begins with.
fn init(unique: u64) -> Vec<u8> {
    let flags = u32::MAX;
    let body = Bytes::default()
        .u32(7)
        .u32(45)
        .u32(1 << 20)
        .u32(flags)
        .u32(u32::MAX)
        .bytes(&[0; 44]);
    request(op::INIT, unique, 0, NOBODY, &body)
}

/// A deliberate fault of the server, which a round finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A lookup of one name panics.
    Panic,
    /// What removes a name also makes one, in the directory that no request named.
    Write,
    /// A request to make a directory gets two answers.
    Twice,
    /// Attributes that are to be removed stay, and nobody says so.
    Silence,
}

/// How a round is run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Threads that make requests at the same time. With one, the seed decides all.
    pub threads: usize,
    /// Faults of the server.
    pub fault: Option<Fault>,
    /// Answers are waited for so long; others may keep the machine busy.
    pub timeout: Duration,
}

impl Default for How {
    fn default() -> How {
        How {
            threads: 1,
            fault: None,
            timeout: TIMEOUT,
        }
    }
}

/// A session from a seed.
///
/// # Errors
/// What did not hold. After a request that hangs, its thread and the volume are left behind.
pub fn round(seed: u64, how: How) -> Result<Done, Failure> {
    count_panics();
    let served = Mutex::default();
    let done = session(seed, how, &served);
    done.map_err(|what| Failure {
        what,
        requests: served.into_inner().unwrap(),
    })
}

/// Who serves: the server, with a fault or without.
struct Served {
    offline: Offline,
    fault: Option<Fault>,
    /// The node of the directory that no request names.
    apart: u64,
}

/// Takes answers.
type Sink = dyn Fn(&[u8]) + Send + Sync;

impl Served {
    /// Serves a request; with `ring` as it comes by io_uring.
    fn serve(&self, request: &[u8], ring: bool, alone: bool) {
        let (opcode, body) = (word(request, 4), request.get(HEAD..).unwrap_or_default());
        match (self.fault, opcode) {
            (Some(Fault::Panic), Some(op::LOOKUP)) if body == b"x1\0" => panic!("a fault"),
            (Some(Fault::Write), Some(op::UNLINK)) => {
                let name = Bytes::default().u32(0o755).u32(0).name(b"nobody asked");
                // Answers to request 0 are nobody's.
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
        // Those that get no answer never come by a ring.
        if ring && wants_answer(request).is_some() {
            let (head, operation, payload) = parts(request);
            self.offline.serve_parts(head, &operation, payload, alone);
        } else {
            self.offline.serve(request, alone);
        }
    }
}

/// What all threads of a round know.
struct Shared {
    served: Arc<Served>,
    known: Mutex<Known>,
    answers: Arc<Answers>,
    /// How many answers each request is to get.
    wanted: Mutex<BTreeMap<u64, usize>>,
    timeout: Duration,
}

impl Shared {
    /// Makes `count` requests one after the other, of which number `destroyed` ends the session.
    fn run(
        &self,
        rng: &mut fastrand::Rng,
        count: usize,
        destroyed: Option<usize>,
        log: &Mutex<Vec<Vec<u8>>>,
    ) -> Result<(), String> {
        // A thread serves, so that one that hangs is noticed.
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

fn session(seed: u64, how: How, log: &Mutex<Vec<Vec<u8>>>) -> Result<Done, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let image = volume(if rng.bool() { 1024 } else { 4096 });
    let before = kept(&image)?;
    let scratch = Scratch::in_memory("requests").map_err(|e| e.to_string())?;
    let path = scratch.path().join("image");
    image.save(&path).map_err(|e| e.to_string())?;
    let presets = Preset::on_a_device();
    let opening = VolumeOptions {
        fs: options(presets[rng.usize(..presets.len())]),
        ..VolumeOptions::default()
    };
    let volume = Volume::open(&path, &opening).map_err(|e| e.to_string())?;
    let opens = if rng.bool() {
        Opens::Stateless
    } else {
        Opens::Handles
    };
    let options = VolumeFsOptions {
        opens,
        direct_io: rng.u8(..4) == 0,
        atomic: rng.u8(..3) == 0,
        ..VolumeFsOptions::default()
    };
    let answers = Arc::new(Answers::default());
    let sink: Arc<Sink> = {
        let answers = Arc::clone(&answers);
        Arc::new(move |answer: &[u8]| answers.put(answer))
    };
    let panics = PANICS.load(Ordering::SeqCst);
    let offline =
        Offline::start(volume, options, &init(1), sink).map_err(|e| format!("INIT: {e}"))?;
    let apart = u64::from(*before.keys().next().ok_or("nothing is kept apart")?);
    let served = Arc::new(Served {
        offline,
        fault: how.fault,
        apart,
    });
    let known = Known {
        apart: before.keys().map(|ino| u64::from(*ino)).collect(),
        ..Known::default()
    };
    let shared = Shared {
        served,
        known: Mutex::new(known),
        answers,
        wanted: Mutex::new(BTreeMap::from([(1, 1)])),
        timeout: how.timeout,
    };
    let count = rng.usize(1..REQUESTS);
    let destroyed = (rng.u8(..8) == 0).then(|| rng.usize(..count));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..how.threads)
            .map(|i| {
                let (mut rng, shared) = (rng.fork(), &shared);
                let destroyed = destroyed.filter(|_| i == 0);
                scope.spawn(move || shared.run(&mut rng, count / how.threads + 1, destroyed, log))
            })
            .collect();
        let all = threads
            .into_iter()
            .map(|t| t.join().map_err(|_| "it panicked")?);
        all.collect::<Vec<_>>()
            .into_iter()
            .collect::<Result<(), String>>()
    })?;
    let Shared {
        served,
        answers,
        wanted,
        ..
    } = shared;
    let wanted = wanted.into_inner().unwrap();
    let begun = Instant::now();
    while answers.counts() != wanted {
        if begun.elapsed() > how.timeout {
            return Err(unlike(&wanted, &answers.counts()));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let (tell, closed) = mpsc::channel();
    thread::spawn(move || {
        let ended = Arc::into_inner(served).map(|served| served.offline.end());
        let _ = tell.send(ended);
    });
    match closed.recv_timeout(TIMEOUT) {
        Ok(Some(ended)) => ended.map_err(|e| format!("closing the volume: {e}"))?,
        Ok(None) => return Err("somebody still holds the session".to_owned()),
        Err(_) => {
            return Err(format!(
                "the volume was not closed within {TIMEOUT:?}, or that panicked"
            ));
        }
    }
    // No answer came later, or twice.
    if answers.counts() != wanted {
        return Err(unlike(&wanted, &answers.counts()));
    }
    if PANICS.load(Ordering::SeqCst) != panics {
        return Err("a thread panicked".to_owned());
    }
    let device = Arc::new(MemDevice::load(&path).map_err(|e| e.to_string())?);
    fsck(&device)?;
    if kept(&device)? != before {
        return Err("the directory that no request named is another".to_owned());
    }
    Ok(Done {
        requests: log.lock().unwrap().len(),
        succeeded: answers.succeeded(),
    })
}

fn unlike(wanted: &BTreeMap<u64, usize>, got: &BTreeMap<u64, usize>) -> String {
    let all: BTreeSet<_> = wanted.keys().chain(got.keys()).copied().collect();
    let count = |of: &BTreeMap<u64, usize>, unique| of.get(&unique).copied().unwrap_or(0);
    let lines = all.into_iter().filter_map(|unique| {
        let (wanted, got) = (count(wanted, unique), count(got, unique));
        (wanted != got).then(|| format!("request {unique}: {got} answers instead of {wanted}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A request for people.
pub fn shown(request: &[u8]) -> String {
    let head = request.len().min(HEAD);
    let body: String = request[head..]
        .iter()
        .take(120)
        .map(|b| format!("{b:02x}"))
        .collect();
    format!(
        "opcode {:?} unique {:?} node {:?}, {} bytes: {body}",
        word(request, 4),
        long(request, 8),
        long(request, 16),
        request.len()
    )
}
