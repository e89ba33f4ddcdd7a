//! Several threads, on several files and on one file.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use stetfs_ext4::*;

use crate::data::volume::{Shape, Volume};
use stetfs_ext4::Ctx;

const SHAPE: Shape = Shape {
    block_size: 4096,
    mib: 64,
    extents: true,
    cluster: 1,
};

/// Each thread works on its own file while others make, sync and delete theirs.
fn own_files(shape: Shape, data: DataMode) {
    let mut vol = Volume::new(shape, data);
    let threads = 6u64;
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (vol, barrier) = (&vol, &barrier);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(t);
                let f = vol.create(&format!("t{t}"));
                let mut model = vec![0u8; 600_000];
                let mut size = 0;
                barrier.wait();
                for round in 0..150u64 {
                    let at = rng.usize(..500_000);
                    let len = rng.usize(1..90_000);
                    let byte = (round % 255) as u8 + 1;
                    match rng.u8(..10) {
                        0 => {
                            let mode = FallocateMode::PunchHole;
                            vol.fs()
                                .fallocate(&Ctx::ROOT, &f, mode, at as u64, len as u64)
                                .unwrap();
                            model[at..at + len].fill(0);
                        }
                        1 => {
                            vol.truncate(&f, at as u64).unwrap();
                            model[at..].fill(0);
                            size = at;
                        }
                        2 => vol.fsync(&f, t % 2 == 0).unwrap(),
                        3 => {
                            let name = format!("temporary{t}");
                            let other = vol.create(&name);
                            vol.fs()
                                .write(&Ctx::ROOT, &other, 0, &vec![byte; len], false)
                                .unwrap();
                            vol.fs()
                                .unlink(&Ctx::ROOT, ROOT_INO, name.as_bytes())
                                .unwrap();
                            vol.fs().forget(other.ino(), 1);
                            assert_eq!(vol.content(&other), vec![byte; len]);
                        }
                        4 | 5 => assert!(
                            vol.content(&f) == model[..size],
                            "thread {t}, round {round}"
                        ),
                        _ => {
                            assert_eq!(
                                vol.fs()
                                    .write(&Ctx::ROOT, &f, at as u64, &vec![byte; len], false)
                                    .unwrap(),
                                len
                            );
                            model[at..at + len].fill(byte);
                            size = size.max(at + len);
                        }
                    }
                }
                assert!(vol.content(&f) == model[..size], "thread {t}, at the end");
            });
        }
    });
    vol.reopen();
    vol.finish();
}

#[test]
fn own_files_ordered() {
    own_files(SHAPE, DataMode::Ordered);
}

#[test]
fn own_files_journaled() {
    own_files(SHAPE, DataMode::Journal);
    own_files(SHAPE, DataMode::Overwrites);
}

#[test]
fn own_files_in_clusters() {
    let shape = Shape {
        cluster: 8,
        ..SHAPE
    };
    own_files(shape, DataMode::Ordered);
    own_files(shape, DataMode::Journal);
}

/// Writers write whole records, and readers must never see a mixed one. Syncs run at the same time.
#[test]
fn one_file_shows_whole_writes() {
    for data in [DataMode::Ordered, DataMode::Journal, DataMode::Overwrites] {
        let vol = Volume::new(SHAPE, data);
        let f = vol.create("f");
        let (record, records) = (10_000usize, 12usize);
        vol.fs()
            .write(&Ctx::ROOT, &f, 0, &vec![1; record * records], false)
            .unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u64)
                .map(|t| {
                    let (vol, f) = (&vol, &f);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(t);
                        for _ in 0..200 {
                            let bytes = vec![rng.u8(1..); record];
                            let at = rng.usize(..records) * record;
                            vol.fs()
                                .write(&Ctx::ROOT, f, at as u64, &bytes, false)
                                .unwrap();
                        }
                    })
                })
                .collect();
            let (vol, f, stop) = (&vol, &f, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    vol.fsync(f, true).unwrap();
                }
            });
            for t in 0..2u64 {
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(t);
                    let mut buf = vec![0; record];
                    while !stop.load(Ordering::Relaxed) {
                        let at = rng.usize(..records) * record;
                        assert_eq!(vol.fs().read(f, at as u64, &mut buf).unwrap(), record);
                        assert!(buf.iter().all(|b| *b == buf[0]), "a torn record");
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(f);
        vol.finish();
    }
}
