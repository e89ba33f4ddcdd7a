//! Tests of operations too large for one transaction: a crash in the middle leaves them undone,
//! done, or at an allowed intermediate state, and never loses or leaks a block.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::common::{long, watchdog};
use stetfs::low::{Ctx, Fs, MemDevice, Preset, preset};
use stetfs_block::{Event, Recorder, Replay};
use stetfs_crash::tree::Seen;
use stetfs_crash::volume::{fsck, mke2fs, open, options, sums};
use stetfs_crash::workload::{Op, Session};
use stetfs_testkit::Scratch;

const BLOCK: u64 = 1024;
/// Extents of the file, one block each: their tree has more blocks than fit into a transaction.
const EXTENTS: u64 = 28_000;

/// A volume with a journal of 1024 blocks and a file `comb` of single blocks with holes between
/// them, and the totals of its blocks and inodes.
fn comb() -> &'static (MemDevice, (u64, u64)) {
    static MADE: OnceLock<(MemDevice, (u64, u64))> = OnceLock::new();
    MADE.get_or_init(|| {
        let scratch = Scratch::new("img").unwrap();
        let path = scratch.path().join("image");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(48 << 20)
            .unwrap();
        mke2fs(&path, &["-b", "1024", "-J", "size=1", "-N", "256"]).unwrap();
        let device = Arc::new(MemDevice::load(&path).unwrap());
        let fs = open(&device, &options(preset::ORDERED)).unwrap();
        let ctx = Ctx::default();
        let (attr, file) = fs
            .create(&ctx, stetfs::low::ROOT_INO, b"comb", 0o644, 0, libc::O_RDWR)
            .unwrap();
        for i in 0..EXTENTS {
            fs.write(&ctx, &file, i * 2 * BLOCK, &i.to_le_bytes(), false)
                .unwrap();
        }
        drop(file);
        fs.forget(attr.ino, 1);
        let sums = sums(&fs, &Seen::capture_without_content(&fs).unwrap());
        fs.unmount().unwrap();
        drop(fs);
        fsck(&device).unwrap();
        (device.fork(), sums)
    })
}

/// Size and space of the file, if it exists: bytes, sectors.
fn look(fs: &Fs) -> Option<(u64, u64)> {
    let attr = fs.lookup(stetfs::low::ROOT_INO, b"comb").ok()?;
    fs.forget(attr.ino, 1);
    Some((attr.size, attr.blocks))
}

/// Crashes everywhere within the operation. Afterwards the file is as before it, as after it, or in
/// a state that `between` allows.
fn crash_within(preset: Preset, op: &Op, between: impl Fn((u64, u64)) -> bool) {
    let (base, sums_before) = comb();
    let device = Arc::new(Recorder::new(base.fork()));
    let fs = open(&device, &options(preset)).unwrap();
    let old = look(&fs);
    let mut session = Session::new(&fs, "").unwrap();
    session.run(op).unwrap();
    let new = look(&fs);
    device.mark("done", 0);
    session.run(&Op::SyncAll).unwrap();
    device.mark("synced", 0);
    let commits = fs.stats().journal.commits;
    assert!(commits > 1, "{op:?} took one transaction");
    drop((session, fs));

    let log = device.take_log();
    let mut replay = Replay::new(base, &log);
    let synced = log
        .events
        .iter()
        .position(|e| matches!(e, Event::Mark { label, .. } if label == "synced"))
        .unwrap();
    let step = if long() { 1 } else { log.len().div_ceil(10) };
    let (mut undone, mut done, mut middle) = (0, 0, 0);
    for point in (0..log.len()).step_by(step).chain([log.len()]) {
        let what = format!("{preset}, {op:?}, event {point} of {}", log.len());
        let _watched = watchdog::watch(&what, Duration::from_secs(120));
        replay.advance_to(point);
        let mut rng = fastrand::Rng::with_seed(point as u64);
        let left = Arc::new(replay.crash(|_| rng.bool()));
        let fs = open(&left, &options(preset)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let is = look(&fs);
        match is {
            _ if is == new => done += 1,
            _ if is == old => undone += 1,
            Some(is) if between(is) => middle += 1,
            _ => panic!("{what}: {is:?}, was {old:?}, is to be {new:?}"),
        }
        assert!(point <= synced || is == new, "{what}: synced, but {is:?}");
        let seen = Seen::capture_without_content(&fs).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(
            sums(&fs, &seen),
            *sums_before,
            "{what}: blocks and inodes, free and used"
        );
        fs.unmount().unwrap();
        drop(fs);
        fsck(&left).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    println!("{preset}, {op:?}: {commits} commits; {undone} undone, {middle} between, {done} done");
    assert!(undone > 0 && done > 0);
}

fn path() -> String {
    "comb".into()
}

#[test]
fn unlink_is_done_or_not() {
    for preset in Preset::on_a_device() {
        crash_within(preset, &Op::Unlink { path: path() }, |_| false);
    }
}

#[test]
fn truncate_is_done_or_not() {
    for preset in Preset::on_a_device() {
        crash_within(
            preset,
            &Op::Truncate {
                path: path(),
                size: 5000,
            },
            |_| false,
        );
    }
}

/// The size stays; any part of the holes may have been punched.
#[test]
fn punch_leaves_a_whole_file() {
    let size = (EXTENTS * 2 - 2) * BLOCK + 8;
    for preset in Preset::on_a_device() {
        crash_within(
            preset,
            &Op::Punch {
                path: path(),
                offset: 0,
                len: size,
            },
            |(is, _)| is == size,
        );
    }
}
