//! Malformed requests against the server, such as no kernel sends: with wrong lengths, nodes that
//! were never looked up or are gone, too many forgets, impossible names. They come by `/dev/fuse`
//! and by io_uring, from one thread or several at once.
//!
//! A round is a session. With one thread a seed decides everything; with several, the requests of
//! each. After a round these conditions must hold: nothing panicked; each request that wants an
//! answer got exactly one, in time; the volume can be closed and is sound; the directory that no
//! request named is unchanged.

mod answers;
mod apart;
mod generate;
mod server;

use std::collections::BTreeMap;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use stetfs::low::{MemDevice, Preset, Volume, VolumeOptions};
use stetfs_crash::tree::SeenNode;
use stetfs_crash::volume::{fsck, options};
use stetfs_fuse::{Offline, Opens, VolumeFsOptions};
use stetfs_testkit::Scratch;

use self::answers::{Answers, unlike};
use self::apart::{kept, volume};
use self::generate::Known;
pub use self::server::Fault;
use self::server::{Served, Shared, Sink, init};
use stetfs_testkit::fuse::{HEAD, long, word};

/// Time to wait for an answer; long, because other processes may keep the machine busy.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of requests in a round.
const REQUESTS: usize = 400;
/// Number of panics in this process, in any thread.
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

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Number of requests served.
    pub requests: usize,
    /// Number of answers without an error.
    pub succeeded: usize,
}

/// A failure, with everything that is needed to reproduce it.
#[derive(Debug)]
pub struct Failure {
    /// A description.
    pub what: String,
    /// All requests, in the order of service.
    pub requests: Vec<Vec<u8>>,
}

/// The parameters of a round.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Number of threads that make requests at once. With one, the seed decides everything.
    pub threads: usize,
    /// A deliberate fault of the server.
    pub fault: Option<Fault>,
    /// Time to wait for an answer; long, because other processes may keep the machine busy.
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

/// Runs a session with a seed.
///
/// # Errors
/// The condition that does not hold. After a request that hangs, its thread and the volume are
/// abandoned.
pub fn round(seed: u64, how: How) -> Result<Done, Failure> {
    count_panics();
    let served = Mutex::default();
    let done = session(seed, how, &served);
    done.map_err(|what| Failure {
        what,
        requests: served.into_inner().unwrap(),
    })
}

fn session(seed: u64, how: How, log: &Mutex<Vec<Vec<u8>>>) -> Result<Done, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let image = volume(if rng.bool() { 1024 } else { 4096 });
    let before = kept(&image)?;
    let scratch = Scratch::in_memory("requests").map_err(|e| e.to_string())?;
    let path = scratch.path().join("image");
    image.save(&path).map_err(|e| e.to_string())?;
    let (volume, options) = open(&path, &mut rng)?;
    let panics = PANICS.load(Ordering::SeqCst);
    let shared = serve(volume, options, how, &before)?;
    run(&shared, how.threads, &mut rng, log)?;
    let answers = end(shared)?;
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

/// Opens the volume, with random options for opening and serving it.
fn open(path: &Path, rng: &mut fastrand::Rng) -> Result<(Arc<Volume>, VolumeFsOptions), String> {
    let presets = Preset::on_a_device();
    let opening = VolumeOptions {
        fs: options(presets[rng.usize(..presets.len())]),
        ..VolumeOptions::default()
    };
    let volume = Volume::open(path, &opening).map_err(|e| e.to_string())?;
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
    Ok((volume, options))
}

/// Begins a session, in which no request may name a node of `apart`.
fn serve(
    volume: Arc<Volume>,
    options: VolumeFsOptions,
    how: How,
    apart: &BTreeMap<u32, SeenNode>,
) -> Result<Shared, String> {
    let answers = Arc::new(Answers::default());
    let sink: Arc<Sink> = {
        let answers = Arc::clone(&answers);
        Arc::new(move |answer: &[u8]| answers.put(answer))
    };
    let offline =
        Offline::start(volume, options, &init(1), sink).map_err(|e| format!("INIT: {e}"))?;
    let dir = *apart.keys().next().ok_or("nothing is kept apart")?;
    let known = Known {
        apart: apart.keys().map(|ino| u64::from(*ino)).collect(),
        ..Known::default()
    };
    Ok(Shared {
        served: Arc::new(Served {
            offline,
            fault: how.fault,
            apart: u64::from(dir),
        }),
        known: Mutex::new(known),
        answers,
        wanted: Mutex::new(BTreeMap::from([(1, 1)])),
        timeout: how.timeout,
    })
}

/// Has all threads make their requests.
fn run(
    shared: &Shared,
    threads: usize,
    rng: &mut fastrand::Rng,
    log: &Mutex<Vec<Vec<u8>>>,
) -> Result<(), String> {
    let count = rng.usize(1..REQUESTS);
    let destroyed = (rng.u8(..8) == 0).then(|| rng.usize(..count));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|i| {
                let mut rng = rng.fork();
                let destroyed = destroyed.filter(|_| i == 0);
                scope.spawn(move || shared.run(&mut rng, count / threads + 1, destroyed, log))
            })
            .collect();
        let all = threads
            .into_iter()
            .map(|t| t.join().map_err(|_| "it panicked")?);
        all.collect::<Vec<_>>()
            .into_iter()
            .collect::<Result<(), String>>()
    })
}

/// Waits for the remaining answers, and closes the volume.
fn end(shared: Shared) -> Result<Arc<Answers>, String> {
    let Shared {
        served,
        answers,
        wanted,
        timeout,
        ..
    } = shared;
    let wanted = wanted.into_inner().unwrap();
    let begun = Instant::now();
    while answers.counts() != wanted {
        if begun.elapsed() > timeout {
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
    // No request may get a late or a second answer.
    if answers.counts() != wanted {
        return Err(unlike(&wanted, &answers.counts()));
    }
    Ok(answers)
}

/// A request in readable form.
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
