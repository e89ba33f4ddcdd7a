//! Whole volumes in virtual time: simulated cores create files and sync them, and what they were
//! told is durable is there after a crash.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_ext4::{Ctx, Fs, FsOptions, ROOT_INO, Wait};
use stetfs_sync::simulated::{Outcome, Settings, control, run};
use stetfs_sync::timed::{mpsc, thread};
use stetfs_testkit::{Image, Mkfs};

/// The volume's UUID, and the seed of its hashes of names.
const IDENTITY: &str = "5ca1ab1e-0000-4000-8000-000000000046";
/// Files that each thread creates.
const FILES: usize = 25;

fn volume() -> Arc<MemDevice> {
    let mut mkfs = Mkfs::blocks(4096);
    mkfs.args.extend(["-U", IDENTITY].map(String::from));
    mkfs.extended.push(format!("hash_seed={IDENTITY}"));
    let image = Image::make(64 << 20, &mkfs).unwrap();
    Arc::new(MemDevice::load(image.path()).unwrap())
}

fn options() -> FsOptions {
    FsOptions {
        epoch: Some(1_893_456_000),
        ..FsOptions::default()
    }
}

fn name(thread: usize, file: usize) -> String {
    format!("{thread}-{file}")
}

/// Creates files with a thread on each core, and syncs each. Returns what a power cut leaves then.
fn load(cores: usize, seed: u64) -> Outcome<MemDevice> {
    let device = volume();
    let settings = Settings {
        longest: 60_000_000_000,
        ..Settings::table(cores, seed)
    };
    let outcome = run(settings, move || {
        let fs = Fs::open(device.clone(), options()).unwrap();
        thread::scope(|scope| {
            for t in 0..cores {
                let fs = &fs;
                scope.spawn(move || {
                    control::pin(t);
                    for n in 0..FILES {
                        create(fs, &name(t, n));
                    }
                });
            }
        });
        let cut = device.fork();
        // Its threads stay where they are: an unmount visits inodes in the order of a hash, which
        // differs from run to run.
        std::mem::forget(fs);
        cut
    });
    outcome.unwrap()
}

fn create(fs: &Fs, name: &str) {
    let ctx = Ctx::default();
    let made = fs.create(&ctx, ROOT_INO, name.as_bytes(), 0o644, 0, libc::O_RDWR);
    let (attr, file) = made.unwrap();
    fs.write(&ctx, &file, 0, name.as_bytes(), false).unwrap();
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |done| drop(tell.send(done)));
    fs.fsync(&file, false, Wait::Inline, done);
    told.recv().unwrap().unwrap();
    drop(file);
    fs.forget(attr.ino, 1);
}

#[test]
fn what_simulated_cores_synced_is_there_after_a_crash() {
    let outcome = load(4, 1);
    assert!(outcome.nanos > 0 && outcome.steps > 1000);
    let device = Arc::new(outcome.result);
    let fs = Fs::open(device.clone(), FsOptions::default()).unwrap();
    for t in 0..4 {
        for n in 0..FILES {
            let name = name(t, n);
            let found = fs.lookup(ROOT_INO, name.as_bytes()).unwrap();
            let file = fs.open_inode(&Ctx::default(), found.ino, libc::O_RDONLY);
            let mut content = [0; 32];
            let read = fs.read(&file.unwrap(), 0, &mut content).unwrap();
            assert_eq!(&content[..read], name.as_bytes());
            fs.forget(found.ino, 1);
        }
    }
    fs.unmount().unwrap();
    let image = Image::make(64 << 20, &Mkfs::blocks(4096)).unwrap();
    device.save(image.path()).unwrap();
    image.e2fsck_fn().unwrap();
}

#[test]
fn a_volume_repeats_exactly_on_one_core_and_on_several() {
    for cores in [1, 4] {
        let (first, again) = (load(cores, 7), load(cores, 7));
        assert_eq!(first.nanos, again.nanos);
        assert_eq!((first.steps, first.trace), (again.steps, again.trace));
    }
    assert_ne!(load(4, 7).trace, load(4, 8).trace);
}
