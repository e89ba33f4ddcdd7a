//! Freezes, thaws, remounts with other options, syncs and the end of a mount, by several threads
//! beside changes, without a kernel: no deadlock occurs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use stetfs::low::{Ctx, Done, FsError, ROOT_INO, Volume, VolumeOptions};
use stetfs_fuse::{FileSystem, NewNode, OpenFile, VolumeFs, VolumeFsOptions};
use stetfs_testkit::{Image, Mkfs};

/// More time than anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// More time than an operation takes that is not held back.
const SHORT: Duration = Duration::from_millis(100);
/// Number of rounds of each thread, and more until each kind of operation has succeeded: a remount
/// finds the volume frozen nearly each time.
const ROUNDS: u64 = 60;

/// An image, and the volume on it as a mount serves it.
fn served(journal: &str) -> (Image, Arc<VolumeFs>) {
    let image = Image::make(32 << 20, &Mkfs::blocks(4096)).unwrap();
    let volume = Volume::open(image.path(), &options(journal)).unwrap();
    (image, VolumeFs::new(volume, VolumeFsOptions::default()))
}

fn options(journal: &str) -> VolumeOptions {
    let mut options = VolumeOptions::default();
    options.fs.journal = journal.parse().unwrap();
    options
}

/// Waits for the answer to a request.
fn awaited<T: Send + 'static>(ask: impl FnOnce(Done<T>)) -> Result<T, FsError> {
    let (done, is_done) = channel();
    ask(Box::new(move |answer| drop(done.send(answer))));
    is_done.recv_timeout(LONG).expect("no answer")
}

fn mkdir(fs: &VolumeFs, name: &str) -> Result<u64, FsError> {
    let node = NewNode {
        mode: 0o755,
        umask: 0,
    };
    let made = awaited(|done| fs.mkdir(&Ctx::ROOT, ROOT_INO, name.as_bytes(), node, done))?;
    fs.forget(made.ino, 1);
    Ok(made.ino.into())
}

/// Runs this in a thread of its own, which is abandoned if it does not end.
fn apart<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, is_done) = channel();
    thread::spawn(move || drop(done.send(run())));
    is_done
}

fn ends<T>(what: &str, done: &Receiver<T>) -> T {
    let ended = done.recv_timeout(LONG);
    ended.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// A remount checks several times whether nameless files are still in use, and takes the volume
/// each time. If a freeze came between two checks, and a change waited for the thaw, the remount
/// would wait for the change, and the thaw for the remount.
#[test]
fn a_freeze_comes_before_a_remount_or_behind_it() {
    let (_image, fs) = served("ordered");
    let nameless = {
        let volume = fs.volume().unwrap();
        let fs = volume.fs();
        let made = fs.create(&Ctx::ROOT, ROOT_INO, b"nameless", 0o600, 0, libc::O_RDWR);
        let (_, file) = made.unwrap();
        fs.unlink(&Ctx::ROOT, ROOT_INO, b"nameless").unwrap();
        file
    };
    let reopened = {
        let fs = Arc::clone(&fs);
        apart(move || fs.reopen(&options("ordered")).map_err(|e| e.errno()))
    };
    thread::sleep(Duration::from_millis(20));
    fs.freeze().unwrap();
    let changed = {
        let fs = Arc::clone(&fs);
        apart(move || mkdir(&fs, "later").is_ok())
    };
    assert!(changed.recv_timeout(SHORT).is_err(), "it waits");
    let thawed = {
        let fs = Arc::clone(&fs);
        apart(move || fs.thaw().is_ok())
    };
    assert!(ends("a thaw", &thawed));
    assert!(ends("a change", &changed));
    assert_eq!(ends("a remount", &reopened), Err(libc::EBUSY));
    drop(nameless);
    fs.shutdown();
    fs.closed().unwrap();
}

/// All kinds of operations by several threads, again and again; the mount ends while others
/// continue, frozen or not.
#[test]
fn turns_of_all_kinds_end() {
    for journal in ["ordered", "stet", "zjournal,lanes=2"] {
        let (image, fs) = served(journal);
        let is_over = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        let run = |what: fn(&VolumeFs, u64, &str) -> bool, count: usize| {
            let (fs, is_over, counts) = (fs.clone(), is_over.clone(), counts.clone());
            let journal = journal.to_owned();
            apart(move || {
                for round in 0.. {
                    let done = what(&fs, round, &journal);
                    counts[count].fetch_add(done.into(), Ordering::Relaxed);
                    let have_all = || counts.iter().all(|n| n.load(Ordering::Relaxed) > 0);
                    if is_over.load(Ordering::Acquire) || round >= ROUNDS && have_all() {
                        break;
                    }
                }
            })
        };
        let make: fn(&VolumeFs, u64, &str) -> bool = |fs, round, _| {
            let name = format!("{:?}-{round}", thread::current().id());
            mkdir(fs, &name).is_ok()
        };
        let all = [
            ("changes", run(make, 0)),
            ("more changes", run(make, 0)),
            (
                "syncs",
                run(
                    |fs, round, _| {
                        let root = OpenFile {
                            ino: ROOT_INO,
                            fh: None,
                        };
                        let synced = match round % 2 {
                            0 => awaited(|done| fs.sync_fs(done)),
                            _ => awaited(|done| fs.fsync(&Ctx::ROOT, root, false, done)),
                        };
                        synced.is_ok()
                    },
                    0,
                ),
            ),
            (
                "freezes",
                run(
                    |fs, round, _| {
                        let frozen = fs.freeze().is_ok();
                        thread::sleep(Duration::from_millis(round % 4));
                        frozen && fs.thaw().is_ok()
                    },
                    1,
                ),
            ),
            (
                "other options",
                run(
                    |fs, round, journal| {
                        thread::sleep(Duration::from_millis(round % 3));
                        fs.reopen(&options(journal)).is_ok()
                    },
                    2,
                ),
            ),
        ];
        thread::sleep(Duration::from_secs(2));
        // On a busy machine a kind of operation may not have occurred yet.
        let late = Instant::now() + LONG;
        while counts.iter().any(|n| n.load(Ordering::Relaxed) == 0) && Instant::now() < late {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Release);
        let _ = fs.freeze();
        let ended = {
            let fs = Arc::clone(&fs);
            apart(move || fs.shutdown())
        };
        ends("the end of the mount", &ended);
        for (what, thread) in &all {
            ends(what, thread);
        }
        fs.closed().unwrap();
        for (what, count) in ["changes", "freezes", "remounts"].iter().zip(counts.iter()) {
            assert!(count.load(Ordering::Relaxed) > 0, "{journal}: no {what}");
        }
        image.e2fsck_fn().unwrap();
    }
}
