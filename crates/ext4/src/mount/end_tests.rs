//! Syncs while the volume stops accepting changes: a successful sync is durable.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use stetfs_block::Volatile;
use stetfs_journal::Wait;
use stetfs_sync::Hold;
use stetfs_testkit::Mkfs;

use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::testing::mkfs;
use crate::types::{Ctx, FsOptions, OnError, ROOT_INO};

/// A volume with a file that is not synced.
fn volume(on_error: OnError) -> (Arc<Volatile>, Arc<Fs>, OpenRef) {
    let disk = Volatile::new(mkfs(32, &Mkfs::blocks(4096)).fork(), Duration::ZERO);
    let disk = Arc::new(disk);
    let opts = FsOptions {
        commit_secs: 3600,
        dirty_expire: Duration::from_secs(3600),
        on_error: Some(on_error),
        ..FsOptions::default()
    };
    let fs = Fs::open(disk.clone(), opts).unwrap();
    let (_, file) = fs
        .create(&Ctx::ROOT, ROOT_INO, b"file", 0o600, 0, libc::O_RDWR)
        .unwrap();
    fs.write(&Ctx::ROOT, &file, 0, &[7; 4096], false).unwrap();
    (disk, fs, file)
}

/// All ways to sync the file, one after the other.
fn syncs(fs: &Fs, file: &OpenRef) -> Vec<Result<()>> {
    let wait = |sync: &dyn Fn(crate::types::Done)| {
        let (told, answer) = mpsc::channel();
        sync(Box::new(move |result| drop(told.send(result))));
        answer.recv().unwrap()
    };
    vec![
        wait(&|done| fs.fsync(file, false, Wait::Deferred, done)),
        wait(&|done| fs.fsync(file, true, Wait::Inline, done)),
        wait(&|done| fs.sync_all(done)),
        wait(&|done| fs.commit_all(done)),
    ]
}

/// The content of the file that the disk kept.
fn kept(disk: &Volatile) -> Option<u8> {
    let again = Fs::open(Arc::new(disk.kept()), FsOptions::default()).unwrap();
    let ino = again.lookup(ROOT_INO, b"file").ok()?.ino;
    let file = again.open_inode(&Ctx::ROOT, ino, libc::O_RDONLY).unwrap();
    let mut byte = [0];
    again.read(&file, 0, &mut byte).unwrap();
    Some(byte[0])
}

/// Damage turns the volume read-only, and its journal stops. Between the two, no sync may report
/// success for data that is not durable.
#[test]
fn a_sync_beside_the_turn_to_read_only_is_durable_or_fails() {
    let (disk, fs, file) = volume(OnError::RemountRo);
    let hold = Hold::at(&*fs.vol, "turn-read-only");
    let told = thread::scope(|scope| {
        let turns = scope.spawn(|| fs.vol.report(&FsError::corrupt("test", 1, "for a test")));
        hold.await_one();
        let told = syncs(&fs, &file);
        let durable = kept(&disk);
        drop(hold);
        turns.join().unwrap();
        for answer in &told {
            assert!(answer.is_err() || durable == Some(7), "{told:?}");
        }
        told
    });
    assert!(fs.is_read_only());
    assert!(syncs(&fs, &file).iter().all(Result::is_err), "{told:?}");
}

/// A sync of a volume that is being closed is answered with the result of the closing.
#[test]
fn a_sync_beside_the_closing_is_durable_or_fails() {
    for fails in [false, true] {
        let (disk, fs, file) = volume(OnError::RemountRo);
        let hold = Hold::at(&fs.vol.sb, "closed");
        let told = thread::scope(|scope| {
            let closes = scope.spawn(|| fs.unmount());
            hold.await_one();
            disk.fail_flushes(u64::from(fails));
            let told = scope.spawn(|| syncs(&fs, &file));
            // A wrong answer would come at once.
            thread::sleep(Duration::from_millis(50));
            assert!(!told.is_finished());
            drop(hold);
            assert_eq!(closes.join().unwrap().is_err(), fails);
            told.join().unwrap()
        });
        for answer in told {
            assert_eq!(answer.is_err(), fails);
        }
        assert_eq!(kept(&disk) == Some(7), !fails);
    }
}
