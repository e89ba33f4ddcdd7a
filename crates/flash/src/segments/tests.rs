//! Tests of the log as a device, and after crashes.
#![allow(clippy::unwrap_used)]

use stetfs_block::{Fault, FaultInjector, MemDevice, Recorder, Replay, suite};

use super::*;

const SEGMENT: u64 = 16;

fn options(blocks: u64, in_place_below: usize, cleaner: Cleaner) -> LogOptions {
    LogOptions {
        capacity: blocks * BLOCK,
        segment: SEGMENT * BLOCK,
        in_place_below,
        cleaner,
    }
}

fn mem(segments: u64) -> MemDevice {
    MemDevice::new((segments + 2) * SEGMENT * BLOCK).with_share(4, true)
}

#[test]
fn it_is_a_device() {
    for cleaner in [Cleaner::Copy, Cleaner::Share] {
        for below in [0, 16] {
            let device = LogDevice::format(mem(40), options(200, below, cleaner)).unwrap();
            suite::check_all(&device, 9);
            device.log.read().space.check();
            let report = device.report();
            assert!(report.cleaned > 0 && report.checkpoints > 1, "{report:?}");
            assert_eq!(report.shared > 0, cleaner == Cleaner::Share);
            assert_eq!(report.in_place > 0, below > 0);
            // Opening it again gives the same content.
            let before = content(&device);
            device.flush().unwrap();
            let again = LogDevice::open(device.inner, options(1, below, cleaner)).unwrap();
            assert!(content(&again) == before);
            again.log.read().space.check();
        }
    }
}

fn content(device: &impl BlockDevice) -> Vec<u8> {
    let mut all = vec![0; device.size() as usize];
    device.read(0, &mut all).unwrap();
    all
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |size, options| {
        LogDevice::format(MemDevice::new(size), options)
            .map(drop)
            .unwrap_err()
    };
    let small = refused(20 * SEGMENT * BLOCK, options(200, 0, Cleaner::Copy));
    assert!(matches!(small, LogError::NoRoom { .. }), "{small}");
    let odd = LogOptions {
        capacity: 5000,
        ..options(1, 0, Cleaner::Copy)
    };
    assert!(matches!(refused(1 << 20, odd), LogError::Sizes));
    for mib in [32, 64, 333, 4096] {
        let options = LogOptions::filling(mib << 20);
        assert!(recover::shape(mib << 20, &options, 1).is_ok(), "{mib}");
        assert!(options.capacity > ((mib << 20) * 8 / 10u64).saturating_sub(26 << 20));
    }
    let empty = LogDevice::open(MemDevice::new(1 << 20), options(1, 0, Cleaner::Copy));
    assert!(matches!(empty.map(drop), Err(LogError::NoLog)));
}

/// A workload on a log, with the possible content of each block after each flush.
struct Work {
    /// For each block the content of the last flush, and that of each later write.
    may: Vec<Vec<u8>>,
    /// Number of events recorded when the last flush returned.
    since: usize,
}

/// Writes, trims and flushes over a recorder, with a power cut after each event.
fn crashes(seed: u64, below: usize, cleaner: Cleaner) {
    const BLOCKS: u64 = 60;
    let options = options(BLOCKS, below, cleaner);
    let base = mem(24);
    drop(LogDevice::format(&base, options).unwrap());
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut start = base;
    let mut work = Work {
        may: vec![vec![0]; BLOCKS as usize],
        since: 0,
    };
    // Several lives, each starting from a crash of the one before.
    for _ in 0..3 {
        let recorder = Recorder::new(start.fork());
        let device = LogDevice::open(&recorder, options).unwrap();
        work.since = recorder.position();
        for round in 1..=rng.u8(20..120) {
            let first = rng.u64(..BLOCKS);
            let n = if rng.u8(..4) == 0 { rng.u64(1..30) } else { 1 };
            let n = n.min(BLOCKS - first);
            let range = first as usize..(first + n) as usize;
            match rng.u8(..8) {
                0..5 => {
                    let value = round.wrapping_add(rng.u8(..)).max(1);
                    let data = vec![value; (n * BLOCK) as usize];
                    device.write(first * BLOCK, &data).unwrap();
                    work.may[range].iter_mut().for_each(|m| m.push(value));
                }
                5 => {
                    device.zero(first * BLOCK..(first + n) * BLOCK).unwrap();
                    work.may[range].iter_mut().for_each(|m| m.push(0));
                }
                _ => {
                    device.flush().unwrap();
                    work.since = recorder.position();
                    work.may
                        .iter_mut()
                        .for_each(|m| *m = vec![*m.last().unwrap()]);
                }
            }
            device.log.read().space.check();
        }
        let end = recorder.position();
        drop(device);
        let log = recorder.take_log();
        let mut replay = Replay::new(&start, &log);
        // The possible content is known from the last flush on.
        let mut at = work.since;
        let mut after = None;
        while at <= end {
            replay.advance_to(at);
            let kind = rng.u8(..4);
            let crashed = replay.crash(|_| match kind {
                0 => false,
                1 => true,
                _ => rng.bool(),
            });
            let opened = LogDevice::open(&crashed, options).unwrap();
            opened.log.read().space.check();
            let now = content(&opened);
            for (number, (block, may)) in now.chunks(LEN).zip(&work.may).enumerate() {
                let is = block[0];
                let whole = block.chunks(512).all(|s| s.iter().all(|b| may.contains(b)));
                let torn = block.iter().any(|b| *b != is);
                assert!(
                    whole,
                    "seed {seed}: block {number} has {is}, not of {may:?}, at event {at}"
                );
                // Only a block written in place can be torn.
                assert!(!torn || below > 0, "seed {seed}: block {number} is torn");
            }
            drop(opened);
            after = Some((crashed, now));
            at += 1 + rng.usize(..3);
        }
        let Some((crashed, now)) = after else {
            return;
        };
        start = crashed;
        // Of torn sectors only their present content is known.
        work.may = now
            .chunks(LEN)
            .map(|b| b.chunks(512).map(|s| s[0]).collect())
            .collect();
    }
}

#[test]
fn a_crash_leaves_what_was_flushed() {
    for seed in 0..60 {
        for cleaner in [Cleaner::Copy, Cleaner::Share] {
            crashes(seed, 0, cleaner);
            crashes(seed, 5, cleaner);
        }
    }
}

#[test]
fn what_a_crash_cut_off_does_not_follow_what_comes_after_it() {
    let base = mem(24);
    let options = options(60, 0, Cleaner::Copy);
    let second = {
        let device = LogDevice::format(&base, options).unwrap();
        device.log.read().shape.byte_of(SEGMENT as u32)
    };
    // Two chunks of 15 and 5 blocks, of which only the second arrives.
    let recorder = Recorder::new(base.fork());
    let device = LogDevice::open(&recorder, options).unwrap();
    device.write(0, &[1; 20 * LEN]).unwrap();
    drop(device);
    let log = recorder.take_log();
    let mut replay = Replay::new(&base, &log);
    replay.advance_to(log.len());
    let crashed = replay.crash(|s| s.offset >= second);
    // Another chunk of 15 blocks takes the place of the first.
    let device = LogDevice::open(&crashed, options).unwrap();
    assert!(content(&device).iter().all(|b| *b == 0));
    device.write(20 * BLOCK, &[2; 15 * LEN]).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = LogDevice::open(&crashed, options).unwrap();
    let now = content(&device);
    assert!(
        now[..20 * LEN].iter().all(|b| *b == 0),
        "an old chunk came back"
    );
    assert!(now[20 * LEN..35 * LEN].iter().all(|b| *b == 2));
}

#[test]
fn nothing_is_said_to_be_flushed_behind_what_failed() {
    let below = FaultInjector::new(mem(24));
    let device = LogDevice::format(&below, options(60, 0, Cleaner::Copy)).unwrap();
    device.write(0, &[1; LEN]).unwrap();
    device.flush().unwrap();
    below.add(Fault::fail(Op::Write, libc::EIO).once());
    device.write(0, &[2; LEN]).unwrap();
    assert!(device.flush().is_err());
    device.write(BLOCK, &[3; LEN]).unwrap();
    assert!(device.flush().is_err(), "a later chunk would not be found");
    drop(device);
    let device = LogDevice::open(below.inner(), options(1, 0, Cleaner::Copy)).unwrap();
    assert_eq!((content(&device)[0], content(&device)[LEN]), (1, 0));
}

#[test]
fn sharing_moves_as_much_without_writing_it() {
    let run = |cleaner| {
        let device = LogDevice::format(mem(40), options(300, 0, cleaner)).unwrap();
        device.write(0, &vec![1; 300 * LEN]).unwrap();
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..100 {
            (0..8).for_each(|_| device.write(rng.u64(..300) * BLOCK, &[2; LEN]).unwrap());
            device.flush().unwrap();
        }
        (device.report(), device.inner().stats())
    };
    let ((copied, by_copies), (shared, by_shares)) = (run(Cleaner::Copy), run(Cleaner::Share));
    assert_eq!(copied.moved, shared.moved);
    assert_eq!((copied.shared, shared.shared), (0, shared.moved));
    assert_eq!(by_shares.bytes_shared, shared.moved * BLOCK);
    assert!(by_copies.bytes_written >= by_shares.bytes_written + shared.moved * BLOCK);
}
