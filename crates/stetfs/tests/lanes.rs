//! Volumes whose changes are in several lanes of transactions.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use stetfs::low::{BlockDevice, Ctx, Fs, FsOptions, MemDevice, OpenRef, ROOT_INO, serve_processor};
use stetfs_block::Gate;
use stetfs_testkit::{Image, Mkfs};

const ROOT: Ctx = Ctx {
    uid: 0,
    gid: 0,
    pid: 1,
};
const BLOCK: usize = 4096;
const LONG: Duration = Duration::from_secs(60);
const NEVER: u32 = 24 * 3600;

/// Nothing is committed or written home by itself.
fn options(journal: &str) -> FsOptions {
    FsOptions {
        journal: journal.parse().unwrap(),
        commit_secs: NEVER,
        dirty_expire: Duration::from_secs(u64::from(NEVER)),
        cache_bytes: 64 << 20,
        ..FsOptions::default()
    }
}

fn create(fs: &Fs, name: &str) -> OpenRef {
    let made = fs.create(&ROOT, ROOT_INO, name.as_bytes(), 0o644, 0, libc::O_RDWR);
    made.unwrap().1
}

/// Begins to sync all; gives the end.
fn syncing(fs: &Fs) -> Receiver<stetfs::low::Result<()>> {
    let (done, is_done) = channel();
    fs.sync_all(Box::new(move |r| done.send(r).unwrap()));
    is_done
}

/// The file as a power cut now leaves it; none if it is not there.
fn left(mem: &MemDevice, name: &str) -> Option<Vec<u8>> {
    let fs = Fs::open(Arc::new(mem.fork()), FsOptions::default()).unwrap();
    let found = fs.lookup(ROOT_INO, name.as_bytes()).ok().map(|entry| {
        let open = fs.open_inode(&ROOT, entry.ino, libc::O_RDONLY).unwrap();
        let mut bytes = vec![0; fs.getattr(entry.ino).unwrap().size as usize];
        assert_eq!(fs.read(&open, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    });
    fs.unmount().unwrap();
    found
}

/// A commit's write hangs. A file in it is written again, and another made, by its own lane and the other: nobody waits, who copies
/// is as was asked for, and a crash leaves the same.
#[test]
fn a_hanging_commit_holds_no_writer() {
    let image = Image::make(64 << 20, &Mkfs::blocks(BLOCK as u32).journal_mib(16)).unwrap();
    let made = MemDevice::load(image.path()).unwrap();
    for data in ["ordered", "journal"] {
        for copies in ["on-write", "proactive"] {
            let what = format!("zjournal,data={data},copies={copies},lanes=2");
            let mem = Arc::new(made.fork());
            let gate = Arc::new(Gate::new(mem.clone()));
            let device: Arc<dyn BlockDevice> = gate.clone();
            let fs = Fs::open(device, options(&what)).unwrap();
            serve_processor(0);
            let first = create(&fs, "first");
            let old = vec![1; 10 * BLOCK];
            fs.write(&ROOT, &first, 0, &old, false).unwrap();
            let before = fs.stats().journal;
            let shut = gate.shut();
            let done = syncing(&fs);
            shut.await_one();
            let new = [vec![2; 10 * BLOCK], vec![3; 10 * BLOCK]];
            for (lane, bytes) in new.iter().enumerate() {
                serve_processor(lane as u16);
                fs.write(&ROOT, &first, 0, bytes, false).unwrap();
                create(&fs, ["second", "third"][lane]);
            }
            assert!(done.try_recv().is_err(), "{what}: nothing is written yet");
            let after = fs.stats().journal;
            let copied = after.copies - before.copies;
            let ahead = after.copies_ahead - before.copies_ahead;
            match copies {
                "proactive" => assert!(copied == 0 && ahead > 0, "{what}: {copied}, {ahead}"),
                _ => assert!(copied > 0 && ahead == 0, "{what}: {copied}, {ahead}"),
            }
            drop(shut);
            done.recv_timeout(LONG).unwrap().unwrap();
            assert!(left(&mem, "first") == Some(old), "{what}");
            assert_eq!(left(&mem, "second"), None, "{what}");
            syncing(&fs).recv_timeout(LONG).unwrap().unwrap();
            assert!(left(&mem, "first").as_ref() == new.last(), "{what}");
            assert_eq!(left(&mem, "third"), Some(Vec::new()), "{what}");
            drop(first);
            fs.unmount().unwrap();
            let end = Image::sparse(0).unwrap();
            mem.save(end.path()).unwrap();
            end.e2fsck_fn().unwrap();
        }
    }
}
