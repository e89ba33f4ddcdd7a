//! Dirty data that is never synced is written back when it is old, whatever else happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use stetfs_testkit::wait_until;

use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 96,
    extents: true,
    cluster: 1,
};
const BLOCK: usize = 4096;
const NEVER: u32 = 24 * 3600;

/// Options without background commits.
fn options(data: DataMode, expire: Duration) -> FsOptions {
    FsOptions {
        journal: data.into(),
        commit_secs: NEVER,
        dirty_expire: expire,
        cache_bytes: 64 << 20,
        ..FsOptions::default()
    }
}

fn with_records(expire: Duration) -> FsOptions {
    FsOptions {
        journal: "ordered,records=2".parse().unwrap(),
        ..options(DataMode::Ordered, expire)
    }
}

fn presets(expire: Duration) -> [(&'static str, FsOptions); 3] {
    [
        ("ordered", options(DataMode::Ordered, expire)),
        ("writeback", options(DataMode::Writeback, expire)),
        ("ijournal", with_records(expire)),
    ]
}

fn volume(opts: FsOptions) -> Volume {
    Volume::with(SHAPE, opts, |d| d)
}

fn sync_all(vol: &Volume) {
    let (tx, rx) = std::sync::mpsc::channel();
    vol.fs().sync_all(Box::new(move |r| tx.send(r).unwrap()));
    rx.recv().unwrap().unwrap();
}

/// The content of the file after a power cut now.
fn left(vol: &Volume, name: &str) -> Vec<u8> {
    let mem = Arc::new(vol.mem().fork());
    let crashed = Volume::on(mem.clone(), mem, options(DataMode::Ordered, Duration::MAX));
    let content = crashed.content(&crashed.open(name));
    crashed.finish();
    content
}

/// Waits until the file would survive a crash with this content.
#[track_caller]
fn comes_to_its_home(vol: &Volume, name: &str, what: &str, is: impl Fn(&[u8]) -> bool) {
    wait_until(format_args!("{what} goes home"), || is(&left(vol, name)));
}

/// Ends the threads of a test, also when it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn all(content: &[u8], byte: u8) -> bool {
    content.iter().all(|b| *b == byte)
}

#[test]
fn what_nobody_syncs_goes_home_when_it_is_old() {
    for (name, opts) in presets(Duration::from_millis(100)) {
        let vol = volume(opts);
        let f = vol.create("f");
        let write = |byte| {
            vol.fs()
                .write(&Ctx::ROOT, &f, 0, &[byte; 5 * BLOCK], false)
                .unwrap()
        };
        write(1);
        sync_all(&vol);
        for byte in 2..5 {
            write(byte);
            comes_to_its_home(&vol, "f", name, |c| all(c, byte));
        }
        drop(f);
        vol.finish();
    }
}

/// With a long age, data stays in memory. So the tests above do prove something.
#[test]
fn what_is_young_stays() {
    for (name, opts) in presets(Duration::from_secs(u64::from(NEVER))) {
        let vol = volume(opts);
        let f = vol.create("f");
        let write = |byte| {
            vol.fs()
                .write(&Ctx::ROOT, &f, 0, &[byte; BLOCK], false)
                .unwrap()
        };
        write(1);
        sync_all(&vol);
        write(2);
        std::thread::sleep(Duration::from_millis(300));
        assert!(all(&left(&vol, "f"), 1), "{name}");
        assert_eq!(vol.fs().stats().dirty_bytes, BLOCK as u64, "{name}");
        drop(f);
        vol.finish();
    }
}

/// The age counts from the first change.
#[test]
fn what_is_written_all_the_time_goes_home_too() {
    for (name, opts) in presets(Duration::from_millis(100)) {
        let vol = volume(opts);
        let f = vol.create("f");
        vol.fs()
            .write(&Ctx::ROOT, &f, 0, &[1; BLOCK], false)
            .unwrap();
        sync_all(&vol);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _at_the_end = Stop(&stop);
            scope.spawn(|| {
                let mut byte = 2;
                while !stop.load(Ordering::Relaxed) {
                    vol.fs()
                        .write(&Ctx::ROOT, &f, 0, &[byte; BLOCK], false)
                        .unwrap();
                    byte = byte % 250 + 2;
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            comes_to_its_home(&vol, "f", name, |c| c[0] != 1);
        });
        drop(f);
        vol.finish();
    }
}

/// Syncs of other files have precedence over background write-back, but not forever.
#[test]
fn syncs_of_others_do_not_keep_it_waiting() {
    for (name, opts) in presets(Duration::from_millis(100)) {
        let vol = volume(opts);
        let f = vol.create("f");
        let large = vec![1; 8 << 20];
        vol.fs().write(&Ctx::ROOT, &f, 0, &large, false).unwrap();
        sync_all(&vol);
        let stop = AtomicBool::new(false);
        let byte = AtomicU8::new(0);
        std::thread::scope(|scope| {
            let _at_the_end = Stop(&stop);
            for n in 0..3 {
                let (vol, stop, byte) = (&vol, &stop, &byte);
                scope.spawn(move || {
                    let other = vol.create(&format!("other{n}"));
                    while !stop.load(Ordering::Relaxed) {
                        let byte = byte.fetch_add(1, Ordering::Relaxed);
                        vol.fs()
                            .write(&Ctx::ROOT, &other, 0, &[byte; 100], false)
                            .unwrap();
                        vol.fsync(&other, false).unwrap();
                    }
                });
            }
            vol.fs()
                .write(&Ctx::ROOT, &f, 0, &vec![2; large.len()], false)
                .unwrap();
            comes_to_its_home(&vol, "f", name, |c| all(c, 2));
        });
        drop(f);
        vol.finish();
    }
}

/// The same for many files, and for a file that has no name any more.
#[test]
fn all_files_are_looked_after() {
    for (name, opts) in presets(Duration::from_millis(100)) {
        let vol = volume(opts);
        let files: Vec<OpenRef> = (0..200).map(|i| vol.create(&format!("f{i}"))).collect();
        let write = |byte| {
            for f in &files {
                vol.fs()
                    .write(&Ctx::ROOT, f, 0, &[byte; 3 * BLOCK], false)
                    .unwrap();
            }
        };
        write(1);
        sync_all(&vol);
        vol.fs().unlink(&Ctx::ROOT, ROOT_INO, b"f7").unwrap();
        write(2);
        wait_until(name, || vol.fs().stats().dirty_bytes == 0);
        for i in [0, 99, 199] {
            assert!(all(&left(&vol, &format!("f{i}")), 2), "{name}: f{i}");
        }
        drop(files);
        vol.fs()
            .forget(vol.fs().lookup(ROOT_INO, b"f0").unwrap().ino, 1);
        vol.finish();
    }
}

/// With `writeback` no commit waits for data. But data in new blocks is written back soon after a
/// commit: its age is that of a commit.
#[test]
fn new_blocks_are_not_left_behind_by_a_commit() {
    let opts = FsOptions {
        commit_secs: 1,
        ..options(DataMode::Writeback, Duration::from_secs(u64::from(NEVER)))
    };
    let vol = volume(opts);
    let f = vol.create("f");
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[7; 40 * BLOCK], false)
        .unwrap();
    wait_until("new data goes home", || vol.fs().stats().dirty_bytes == 0);
    // Data that overwrites blocks waits for its own age.
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[8; BLOCK], false)
        .unwrap();
    // Later data in new blocks is written back first.
    let g = vol.create("g");
    vol.fs()
        .write(&Ctx::ROOT, &g, 0, &[7; 40 * BLOCK], false)
        .unwrap();
    wait_until("new data goes home", || {
        vol.fs().stats().dirty_bytes <= BLOCK as u64
    });
    drop(g);
    assert_eq!(vol.fs().stats().dirty_bytes, BLOCK as u64);
    // Data that already waited in the kernel's cache does not wait as long again.
    vol.fs().write_back_early(&f);
    wait_until("aged data goes home", || vol.fs().stats().dirty_bytes == 0);
    drop(f);
    vol.finish();
}

/// After a shutdown without a flush, nothing is written back.
#[test]
fn nothing_old_reaches_a_volume_that_is_shut_down() {
    let vol = volume(options(DataMode::Ordered, Duration::from_millis(300)));
    let f = vol.create("f");
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[1; BLOCK], false)
        .unwrap();
    sync_all(&vol);
    vol.fs()
        .write(&Ctx::ROOT, &f, 0, &[2; BLOCK], false)
        .unwrap();
    vol.fs().go_down(GoingDown::AtOnce, Box::new(|_| {}));
    let before = left(&vol, "f");
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(left(&vol, "f"), before);
}
