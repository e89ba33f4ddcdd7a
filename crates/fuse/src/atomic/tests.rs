#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::sync::mpsc::channel;
use std::time::Duration;

use stetfs::low::{FsOptions, MemDevice, ROOT_INO};
use stetfs_testkit::{Image, Mkfs};

use super::*;

/// Longer than a read takes.
const LONG: Duration = Duration::from_secs(20);
/// Longer than a request takes to come to where it waits for the thaw.
const MOMENT: Duration = Duration::from_millis(200);

type Request<'a> = &'a (dyn Fn() -> Result<(), FsError> + Sync);

/// Requests that were sent before the volume was frozen wait for the thaw. Who reads a file of
/// their group does not wait for them.
#[test]
fn a_group_that_waits_for_the_thaw_holds_off_no_reader() {
    let image = Image::make(32 << 20, &Mkfs::blocks(1024)).unwrap();
    let device = Arc::new(MemDevice::load(image.path()).unwrap());
    let opts = FsOptions {
        journal: "data".parse().unwrap(),
        ..FsOptions::default()
    };
    let fs = &*Fs::open(device, opts).unwrap();
    let ctx = Ctx {
        pid: std::process::id(),
        ..Ctx::ROOT
    };
    let create = |name: &[u8]| {
        let made = fs.create(&ctx, ROOT_INO, name, 0o644, 0, libc::O_RDWR);
        made.unwrap().1
    };
    let (db, other) = (create(b"db"), create(b"other"));
    let ino = db.ino();
    let fh = |nr| Fh(NonZeroU64::new(nr).unwrap());
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
            // Else nothing here ended.
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
