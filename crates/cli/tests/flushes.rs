//! Tests of the number of device flushes for the syncs of programs, compared with the kernel's
//! ext4.
//!
//! A sync on a disk waits mostly for flushes. Each case counts the flushes of several rounds on a
//! loop device of its own. The device has no forced unit access, so a commit block takes a flush,
//! too, as the kernel's does.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use crate::common::stetfs_with;
use stetfs_testkit::{Attach, Image, Mkfs, Mounted, Mounter};

const ROUNDS: u64 = 6;
/// Most runs of each case.
const RUNS: usize = 3;
const PAGE: usize = 4096;

/// A mounted volume without commits other than those of syncs.
struct Volume {
    mounted: Mounted,
    _image: Image,
}

impl Volume {
    fn new(mounter: Mounter) -> Volume {
        let image = Image::make(64 << 20, &Mkfs::new()).unwrap();
        let mounter = mounter.attached(Attach::Loop { direct_io: true });
        let mounted = mounter.mount(image.path()).unwrap();
        Volume {
            mounted,
            _image: image,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.path().join(name)
    }

    fn sync(&self) {
        rustix::fs::syncfs(File::open(self.mounted.path()).unwrap()).unwrap();
    }

    /// Flush requests that the device has seen (Documentation/block/stat.rst, field 16).
    fn flushes(&self) -> u64 {
        let node = self.mounted.device().unwrap();
        let name = node.file_name().unwrap().to_str().unwrap();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let field = stat.split_whitespace().nth(15).unwrap();
        field.parse().unwrap()
    }

    /// Flushes per round, after one round that is not counted.
    fn each(&self, mut round: impl FnMut(u64)) -> f64 {
        self.sync();
        round(0);
        let before = self.flushes();
        (1..=ROUNDS).for_each(round);
        (self.flushes() - before) as f64 / ROUNDS as f64
    }
}

/// Compares the counts for the kernel and the presets with the expected ones.
#[track_caller]
fn counts(case: &dyn Fn(&Volume) -> f64, expected: [f64; 4]) {
    let mounter = |at: usize| match ["ordered", "data", "ijournal"].get(at.wrapping_sub(1)) {
        Some(journal) => stetfs_with(&format!("journal={journal},commit=300")),
        None => Mounter::ext4("commit=300"),
    };
    // Another sync of the whole machine, or a clock tick between two syncs, adds flushes: the
    // lowest count of a few runs is used.
    let mut found = [f64::INFINITY; 4];
    for _ in 0..RUNS {
        for (at, found) in found.iter_mut().enumerate() {
            if *found > expected[at] {
                *found = case(&Volume::new(mounter(at))).min(*found);
            }
        }
    }
    assert_eq!(found, expected, "kernel, ordered, data, ijournal");
}

fn open(path: &Path) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false);
    how.open(path).unwrap()
}

/// Waits for a tick of the kernel's clock: the time stamps of files change at most once per tick.
fn tick() {
    std::thread::sleep(Duration::from_millis(12));
}

fn write(file: &File, at: u64, len: usize) {
    file.write_all_at(&vec![at as u8 + 1; len], at).unwrap();
}

#[test]
fn an_append() {
    counts(
        &|volume| {
            let file = open(&volume.path("log"));
            volume.each(|i| {
                write(&file, i * PAGE as u64, PAGE);
                file.sync_all().unwrap();
            })
        },
        [2.0, 2.0, 2.0, 1.0],
    );
}

#[test]
fn data_over_old_data() {
    let old = |volume: &Volume| {
        let file = open(&volume.path("table"));
        write(&file, 0, 16 * PAGE);
        file.sync_all().unwrap();
        file
    };
    let data = |volume: &Volume| {
        let file = old(volume);
        volume.each(|i| {
            tick();
            write(&file, i * PAGE as u64, PAGE);
            file.sync_data().unwrap();
        })
    };
    counts(&data, [1.0, 1.0, 2.0, 1.0]);
    let all = |volume: &Volume| {
        let file = old(volume);
        volume.each(|i| {
            tick();
            write(&file, i * PAGE as u64, PAGE);
            file.sync_all().unwrap();
        })
    };
    counts(&all, [2.0, 2.0, 2.0, 1.0]);
}

/// A sync of durable data takes no flush.
#[test]
fn nothing_new() {
    counts(
        &|volume| {
            let file = open(&volume.path("file"));
            let dir = File::open(volume.mounted.path()).unwrap();
            write(&file, 0, PAGE);
            file.sync_all().unwrap();
            volume.each(|_| dir.sync_data().unwrap())
        },
        [0.0, 0.0, 0.0, 0.0],
    );
}

/// SQLite's rollback journal, up to the write of the database (strace of 3.46, `synchronous=FULL`).
fn journal_and_write(volume: &Volume, journal: &File, database: &File, i: u64) {
    write(journal, 0, 512);
    for (at, len) in [(512, 4), (516, PAGE), (4612, 4), (4616, 4), (4620, PAGE)] {
        write(journal, at, len);
    }
    write(journal, 8716, 4);
    journal.sync_data().unwrap();
    File::open(volume.mounted.path())
        .unwrap()
        .sync_data()
        .unwrap();
    write(journal, 0, 12);
    journal.sync_data().unwrap();
    write(database, 0, PAGE);
    write(database, (i % 8 + 1) * PAGE as u64, PAGE);
    database.sync_data().unwrap();
}

fn sqlite(volume: &Volume, end: &dyn Fn(&File, &Path)) -> f64 {
    let path = volume.path("data.db-journal");
    let database = open(&volume.path("data.db"));
    write(&database, 0, 16 * PAGE);
    database.sync_all().unwrap();
    volume.each(|i| {
        tick();
        let journal = open(&path);
        journal_and_write(volume, &journal, &database, i);
        end(&journal, &path);
    })
}

#[test]
fn sqlite_deletes_its_journal() {
    let delete = |_: &File, path: &Path| fs::remove_file(path).unwrap();
    counts(&|v| sqlite(v, &delete), [4.0, 4.0, 6.0, 3.0]);
}

#[test]
fn sqlite_truncates_its_journal() {
    let truncate = |journal: &File, _: &Path| {
        journal.set_len(0).unwrap();
        journal.sync_data().unwrap();
    };
    counts(&|v| sqlite(v, &truncate), [6.0, 6.0, 8.0, 4.0]);
}

#[test]
fn sqlite_keeps_its_journal() {
    let persist = |journal: &File, _: &Path| {
        write(journal, 0, 28);
        journal.sync_data().unwrap();
    };
    // The kernel's sync of the directory commits all changes, here the times of the journal.
    counts(&|v| sqlite(v, &persist), [6.0, 4.0, 8.0, 4.0]);
}

#[test]
fn sqlite_appends_to_its_log() {
    counts(
        &|volume| {
            let log = open(&volume.path("data.db-wal"));
            write(&log, 0, 32);
            log.sync_all().unwrap();
            volume.each(|i| {
                let at = 32 + i * (24 + PAGE as u64);
                write(&log, at, 24);
                write(&log, at + 24, PAGE);
                log.sync_data().unwrap();
            })
        },
        [2.0, 2.0, 2.0, 1.0],
    );
}

/// Two threads append and sync, in step. One flush, or one pair, serves both.
#[test]
fn two_threads_in_step() {
    let each = |mounter: Mounter| {
        let volume = Volume::new(mounter);
        let files = ["a", "b"].map(|name| open(&volume.path(name)));
        let barrier = Barrier::new(2);
        volume.each(|i| {
            std::thread::scope(|scope| {
                for file in &files {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        for j in 0..50 {
                            barrier.wait();
                            write(file, (i * 50 + j) * PAGE as u64, PAGE);
                            file.sync_all().unwrap();
                        }
                    });
                }
            });
        }) / 100.0
    };
    let kernels = each(Mounter::ext4("commit=300"));
    // Under other load the threads are not in step, which only adds flushes: the lowest count of
    // some rounds shows the sharing.
    let mut ours = f64::MAX;
    for _ in 0..3 {
        ours = ours.min(each(stetfs_with("journal=ordered,commit=300")));
        if ours < 1.5 {
            break;
        }
    }
    assert!(kernels < 2.3, "{kernels}");
    assert!(
        ours < 1.5,
        "{ours} flushes for a sync, the kernel {kernels}"
    );
}
