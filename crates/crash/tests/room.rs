//! A workload that frees as much as it can must end, even with the smallest journals of all kinds.
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use stetfs::low::{Ctx, Fs, FsOptions, ROOT_INO, SetAttr};
use stetfs_block::MemDevice;
use stetfs_testkit::{Image, Mkfs};

/// More time than any part of the test takes.
const LONG: Duration = Duration::from_secs(120);
const THREADS: u64 = 4;
/// Files of each thread, and bytes of each file.
const FILES: u64 = 12;
const BYTES: usize = 512 << 10;

/// Journals that log file data, so that every freed block is revoked, and some that do not.
const JOURNALS: [&str; 9] = [
    "ordered",
    "data",
    "ldj",
    "ldj,compress=zstd",
    "stet",
    "zjournal",
    "zjournal,data=journal,lanes=2,commits=apart",
    "zjournal,data=journal,codec=frames,compress=zstd,lanes=3",
    "zjournal,data=journal,codec=frames,compress=zstd,lanes=10",
];

/// A fresh volume with a journal of `journal_mib` MiB.
fn fresh(block: u32, journal_mib: u32) -> MemDevice {
    let mkfs = Mkfs {
        journal_mib: Some(journal_mib),
        ..Mkfs::blocks(block)
    };
    let image = Image::make(128 << 20, &mkfs).unwrap();
    MemDevice::load(image.path()).unwrap()
}

/// Opens a volume with the smallest journal that is accepted.
fn smallest(block: u32, journal: &str) -> (Arc<MemDevice>, Arc<Fs>) {
    let mut mib = block >> 10;
    while mib <= 64 {
        let device = Arc::new(fresh(block, mib));
        let opts = FsOptions {
            journal: journal.parse().unwrap(),
            commit_secs: 3600,
            ..FsOptions::default()
        };
        match Fs::open(device.clone(), opts) {
            Ok(fs) => return (device, fs),
            Err(_) => mib *= 2,
        }
    }
    panic!("{journal}: no journal is large enough");
}

fn ends(what: &str, done: &Receiver<()>) {
    let ended = done.recv_timeout(LONG);
    ended.unwrap_or_else(|_| panic!("{what} does not end"));
}

/// Runs this in several threads, each with its number.
fn in_threads(what: &str, fs: &Arc<Fs>, run: fn(&Fs, u64)) {
    let (done, is_done) = channel();
    for i in 0..THREADS {
        let (fs, done) = (Arc::clone(fs), done.clone());
        thread::spawn(move || {
            run(&fs, i);
            let _ = done.send(());
        });
    }
    (0..THREADS).for_each(|_| ends(what, &is_done));
}

fn sync(what: &str, fs: &Fs) {
    let (done, is_done) = channel();
    fs.sync_all(Box::new(move |synced| {
        synced.unwrap();
        let _ = done.send(());
    }));
    ends(what, &is_done);
}

fn name(thread: u64, file: u64) -> Vec<u8> {
    format!("{thread}-{file}").into_bytes()
}

/// room.W1
#[test]
fn what_frees_all_ends_in_the_smallest_journals() {
    for block in [1024, 4096] {
        for journal in JOURNALS {
            let what = format!("{journal}, blocks of {block}");
            let (device, fs) = smallest(block, journal);
            for _ in 0..2 {
                in_threads(&what, &fs, |fs, thread| {
                    for file in 0..FILES {
                        let name = name(thread, file);
                        let made = fs.create(&Ctx::ROOT, ROOT_INO, &name, 0o600, 0, libc::O_RDWR);
                        let (attr, open) = made.unwrap();
                        let data = vec![7; BYTES];
                        fs.write(&Ctx::ROOT, &open, 0, &data, false).unwrap();
                        drop(open);
                        fs.forget(attr.ino, 1);
                    }
                });
                sync(&what, &fs);
                in_threads(&what, &fs, |fs, thread| {
                    for file in 0..FILES {
                        let name = name(thread, file);
                        let ino = fs.lookup(ROOT_INO, &name).unwrap().ino;
                        if file % 2 == 0 {
                            let set = SetAttr {
                                size: Some(0),
                                ..SetAttr::default()
                            };
                            fs.setattr(&Ctx::ROOT, ino, &set).unwrap();
                        }
                        fs.unlink(&Ctx::ROOT, ROOT_INO, &name).unwrap();
                        fs.forget(ino, 1);
                    }
                });
                sync(&what, &fs);
            }
            let (done, is_done) = channel();
            let closing = Arc::clone(&fs);
            thread::spawn(move || {
                closing.unmount().unwrap();
                let _ = done.send(());
            });
            ends(&what, &is_done);
            let image = Image::sparse(0).unwrap();
            device.save(image.path()).unwrap();
            image.e2fsck_fn().unwrap();
        }
    }
}
