#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use stetfs::low::{FsOptions, MemDevice, ROOT_INO};
use stetfs_testkit::{Image, Mkfs};

use super::*;

/// Longer than a read takes.
const LONG: Duration = Duration::from_secs(20);
/// Longer than a request takes to reach its wait for the thaw.
const MOMENT: Duration = Duration::from_millis(200);

type Request<'a> = &'a (dyn Fn() -> Result<(), FsError> + Sync);

/// A volume whose data goes through the journal.
fn volume() -> (Image, Arc<Fs>) {
    let image = Image::make(32 << 20, &Mkfs::blocks(1024)).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let opts = FsOptions {
        journal: "data".parse().unwrap(),
        ..FsOptions::default()
    };
    (image, Fs::open(device, opts).unwrap())
}

fn ours() -> Ctx {
    Ctx {
        pid: std::process::id(),
        ..Ctx::ROOT
    }
}

fn create(fs: &Fs, name: &[u8]) -> OpenRef {
    let made = fs.create(&ours(), ROOT_INO, name, 0o644, 0, libc::O_RDWR);
    made.unwrap().1
}

fn fh(nr: u64) -> Fh {
    Fh(NonZeroU64::new(nr).unwrap())
}

/// A mount on which the time limit applies, or not.
struct Watched(bool, std::sync::mpsc::Sender<Vec<Ino>>);

impl Watcher for Watched {
    fn is_due(&self) -> bool {
        self.0
    }

    fn ended(&self, files: &[Ino]) {
        self.1.send(files.to_vec()).unwrap();
    }
}

/// An unchanged group expires, but not while its program cannot change anything.
#[test]
fn time_ends_groups_while_it_counts() {
    let (_image, fs) = volume();
    let db = create(&fs, b"db");
    let ctx = ours();
    for counts in [false, true] {
        let files = Arc::new(AtomicFiles::default());
        let (told, tells) = channel();
        let watcher = Watched(counts, told);
        let limit = Duration::from_millis(20);
        let expiry = Expiry::start(Arc::clone(&files), limit, watcher).unwrap();
        files.start(&fs, &ctx, fh(1), &db).unwrap();
        match counts {
            true => assert_eq!(tells.recv_timeout(LONG), Ok(vec![db.ino()])),
            false => {
                assert!(tells.recv_timeout(MOMENT).is_err());
                assert_eq!(files.holders().len(), 1);
                assert!(files.commit(&fs, fh(1), db.ino()).unwrap().1.is_ok());
            }
        }
        assert!(files.commit(&fs, fh(1), db.ino()).is_none());
        drop(expiry);
        // The thread ends.
        assert_eq!(
            tells.recv_timeout(LONG),
            Err(RecvTimeoutError::Disconnected)
        );
    }
    drop(db);
    fs.unmount().unwrap();
}

/// A change keeps a group, and so does a change in progress.
#[test]
fn what_is_changed_is_not_over() {
    let (_image, fs) = volume();
    let (db, ctx) = (create(&fs, b"db"), ours());
    let files = AtomicFiles::default();
    files.start(&fs, &ctx, fh(1), &db).unwrap();
    let limit = Duration::from_secs(3600);
    let age = || {
        let group = &files.find(db.ino()).unwrap().group;
        *group.changed.lock() = Instant::now().checked_sub(2 * limit).unwrap();
    };
    assert_eq!(files.expire(limit), []);
    age();
    let write = |group: &mut AtomicGroup| group.write(&ctx, db.ino(), 0, b"new");
    files
        .change(&fs, db.ino(), By::Handle(Some(fh(1))), write)
        .unwrap()
        .unwrap();
    assert_eq!(files.expire(limit), []);
    // A thaw restarts the time limit.
    age();
    files.touch_all();
    assert_eq!(files.expire(limit), []);
    // Refused changes by other handles do not keep it.
    age();
    assert!(
        files
            .change(&fs, db.ino(), By::Handle(None), write)
            .unwrap()
            .is_err()
    );
    assert_eq!(files.expire(limit), [db.ino()]);
    // The holder gets an error until it acknowledges.
    let write = |group: &mut AtomicGroup| group.write(&ctx, db.ino(), 0, b"new");
    let told = files
        .change(&fs, db.ino(), By::Handle(Some(fh(1))), write)
        .unwrap();
    assert!(matches!(told, Err(FsError::Errno(libc::EIO))));
    let again = files.start(&fs, &ctx, fh(1), &db);
    assert!(matches!(again, Err(FsError::Errno(libc::EIO))));
    files.start(&fs, &ctx, fh(1), &db).unwrap();
    // Each handle gets the error once for itself.
    let other = create(&fs, b"other");
    let token = files.token(fh(1), db.ino()).unwrap();
    files.join(&fs, &ctx, fh(2), &other, token).unwrap();
    assert_eq!(files.break_group(db.ino()).unwrap().len(), 2);
    assert!(files.release(fh(2), other.ino()).is_empty());
    assert!(files.is_broken(By::Handle(Some(fh(1)))));
    drop((db, other));
    fs.unmount().unwrap();
}

/// Requests sent before the volume was frozen wait for the thaw. Readers of a file of their group
/// do not wait for them.
#[test]
fn a_group_that_waits_for_the_thaw_holds_off_no_reader() {
    let (_image, fs) = volume();
    let (fs, ctx) = (&*fs, ours());
    let (db, other) = (create(fs, b"db"), create(fs, b"other"));
    let ino = db.ino();
    let files = AtomicFiles::default();
    files.start(fs, &ctx, fh(1), &db).unwrap();
    let token = files.token(fh(1), ino).unwrap();
    let change = |at| {
        let write = |group: &mut AtomicGroup| group.write(&ctx, ino, at, b"new");
        files
            .change(fs, ino, By::Handle(Some(fh(1))), write)
            .unwrap()
    };
    change(0).unwrap();
    let requests: [(&str, Request<'_>); 3] = [
        ("a write", &|| change(3).map(drop)),
        ("a join", &|| files.join(fs, &ctx, fh(2), &other, token)),
        ("a commit", &|| files.commit(fs, fh(1), ino).unwrap().1),
    ];
    for (what, request) in requests {
        fs.freeze().unwrap();
        let (is_read, has_waited) = std::thread::scope(|scope| {
            let waits = scope.spawn(request);
            std::thread::sleep(MOMENT);
            let (done, is_done) = channel();
            let files = &files;
            scope.spawn(move || {
                let mut buf = [0; 3];
                let n = files.look(ino, |group| group.read(ino, 0, &mut buf));
                done.send((n.unwrap().unwrap(), buf)).unwrap();
            });
            let is_read = is_done.recv_timeout(LONG);
            let has_waited = !waits.is_finished();
            // Otherwise nothing here would end.
            fs.thaw().unwrap();
            waits.join().unwrap().unwrap();
            (is_read, has_waited)
        });
        assert!(has_waited, "{what} changes a frozen volume");
        assert_eq!(is_read, Ok((3, *b"new")), "{what} holds off who reads");
    }
    drop((db, other));
    fs.unmount().unwrap();
}
