//! Writes for which there is not enough room.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stetfs_block::MemDevice;
use stetfs_journal::Canary;
use stetfs_sync::Hold;
use stetfs_testkit::Mkfs;

use crate::fs::Fs;
use crate::ops::inodes::OpenRef;
use crate::space::Reservation;
use crate::testing::{fsck, mkfs};
use crate::types::{Ctx, FsOptions, ROOT_INO};

const BLOCK: usize = 4096;
/// Blocks of a write.
const LEN: usize = 5;
const JOURNALS: [&str; 6] = ["ordered", "writeback", "ijournal", "data", "ldj", "stet"];

struct Rig {
    device: Arc<MemDevice>,
    fs: Arc<Fs>,
    file: OpenRef,
}

impl Rig {
    fn new(journal: &str, canary: Canary, features: &str) -> Rig {
        let device = mkfs(32, &Mkfs::blocks(4096).feature(features));
        let opts = FsOptions {
            journal: journal.parse().unwrap(),
            commit_secs: 3600,
            canary,
            ..FsOptions::default()
        };
        let fs = Fs::open(device.clone(), opts).unwrap();
        let made = fs.create(&Ctx::ROOT, ROOT_INO, b"file", 0o644, 0, libc::O_RDWR);
        let (attr, file) = made.unwrap();
        fs.forget(attr.ino, 1);
        fs.vol.journal.commit_all().unwrap();
        Rig { device, fs, file }
    }

    /// Promises all room except that for a write of so many blocks.
    fn leave_room(&self, blocks: u64) -> Vec<Reservation<'_>> {
        let nodes = self
            .fs
            .data
            .map_space(&self.file.inode.body.read(), LEN as u64);
        let reserve = |clusters| self.fs.space.reserve(clusters, true);
        let left = reserve(blocks + nodes).unwrap();
        let mut all = Vec::new();
        for step in (0..20).rev() {
            while let Ok(promise) = reserve(1 << step) {
                all.push(promise);
            }
        }
        drop(left);
        all
    }

    fn write(&self) -> usize {
        let bytes = [7; LEN * BLOCK];
        let written = self.fs.write(&Ctx::ROOT, &self.file, 0, &bytes, false);
        written.unwrap()
    }

    /// The size of the file after a crash now, bytes.
    fn left(&self) -> usize {
        let crashed = Arc::new(self.device.fork());
        let fs = Fs::open(crashed.clone(), FsOptions::default()).unwrap();
        let size = fs.lookup(ROOT_INO, b"file").unwrap().size;
        fs.unmount().unwrap();
        drop(fs);
        fsck(&crashed);
        usize::try_from(size).unwrap()
    }
}

#[test]
fn a_write_takes_the_room_that_there_is_and_leaves_the_rest_to_the_next_call() {
    for journal in JOURNALS {
        for features in ["extents", "^extents,^64bit"] {
            for blocks in 1..=LEN {
                let rig = Rig::new(journal, Canary::default(), features);
                let promised = rig.leave_room(blocks as u64);
                let what = format!("{journal}, {features}, room for {blocks}");
                assert_eq!(rig.write(), blocks * BLOCK, "{what}");
                rig.fs.vol.journal.commit_all().unwrap();
                assert_eq!(rig.left(), blocks * BLOCK, "{what}");
                drop(promised);
                assert_eq!(rig.write(), LEN * BLOCK, "{what}");
            }
        }
    }
}

/// Room appears during a write that found too little, and everything written until then is
/// committed. Returns the bytes written, and the bytes after a crash.
fn with_room_meanwhile(journal: &str, canary: Canary) -> (usize, usize) {
    let rig = Rig::new(journal, canary, "extents");
    let promised = rig.leave_room(3);
    let hold = Hold::at(&*rig.fs, "write-on");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| rig.write());
        if canary.write_on {
            hold.await_one();
        } else {
            while !writer.is_finished() {
                std::thread::yield_now();
            }
        }
        drop(promised);
        rig.fs.vol.journal.commit_all().unwrap();
        let left = rig.left();
        drop(hold);
        (writer.join().unwrap(), left)
    })
}

#[test]
fn a_write_that_found_too_little_room_is_whole_as_far_as_it_says() {
    for journal in JOURNALS {
        let (written, left) = with_room_meanwhile(journal, Canary::default());
        assert_eq!((written, left), (3 * BLOCK, 3 * BLOCK), "{journal}");
    }
}

#[test]
fn a_write_that_goes_on_in_another_transaction_is_seen() {
    let canary = Canary {
        write_on: true,
        ..Canary::default()
    };
    for journal in JOURNALS {
        let (written, left) = with_room_meanwhile(journal, canary);
        assert_eq!((written, left), (LEN * BLOCK, 3 * BLOCK), "{journal}");
    }
}
