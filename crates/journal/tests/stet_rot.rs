//! Frames that change after they were durable: an error, not a log that ends early.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{BLOCKS, BS, Kind, LOG, block, put, scheme, start};
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_journal::{Canary, Result, recover};

const KINDS: [Kind; 3] = [Kind::Stet, Kind::StetLz4, Kind::StetZstd];

/// Three transactions of one block each: blocks 300, 301 and 302.
fn volume(kind: Kind) -> MemDevice {
    let device = Arc::new(common::format(kind));
    let (cache, journal) = start(kind, device.clone());
    for nr in 300..303 {
        journal.commit(&put(&cache, &journal, nr, 7)).unwrap();
    }
    device.fork()
}

/// First log blocks of the frames, in order.
fn frames(device: &MemDevice) -> Vec<u64> {
    (1..LOG)
        .filter(|nr| block(device, *nr).starts_with(b"stetfrm1"))
        .collect()
}

/// Transactions that a recovery takes with a bit of this log block turned.
fn with_rot(kind: Kind, nr: u64, byte: u64) -> Result<u64> {
    let device = volume(kind);
    let at = nr * BS as u64 + byte;
    let mut old = [0];
    device.read(at, &mut old).unwrap();
    device.write(at, &[old[0] ^ 4]).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let scheme = scheme(kind, &device, Canary::default(), false);
    let canary = Canary::default();
    Ok(recover(&scheme, &*device, BLOCKS, canary, false, &mut |_, _| {})?.transactions)
}

#[test]
fn rot_in_what_was_committed_is_an_error() {
    for kind in KINDS {
        let frames = frames(&volume(kind));
        assert_eq!(frames.len(), 3, "{kind:?}");
        for (i, frame) in frames.iter().enumerate() {
            // The magic number, the epoch, the sequence, the table; and the payload.
            for (nr, byte) in [(0, 3), (0, 17), (0, 25), (0, 85), (1, 5)] {
                let result = with_rot(kind, frame + nr, byte);
                if i + 1 < frames.len() {
                    let e = result.expect_err("a shorter log").to_string();
                    assert!(e.contains("was durable"), "{kind:?}, byte {byte}: {e}");
                } else {
                    // The last one is as a power cut would have left it.
                    assert_eq!(result.unwrap(), 2, "{kind:?}, byte {byte}");
                }
            }
        }
    }
}

/// Without barriers a frame may be whole before the one in front of it.
#[test]
fn without_barriers_a_hole_ends_the_log() {
    let device = Arc::new(common::format(Kind::Stet));
    let (cache, journal) = common::start_with(Kind::Stet, device.clone(), false);
    for nr in 300..303 {
        journal.commit(&put(&cache, &journal, nr, 7)).unwrap();
    }
    let crashed = device.fork();
    let second = frames(&crashed)[1];
    crashed.write(second * BS as u64, &[0; BS]).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(crashed);
    let scheme = scheme(Kind::Stet, &device, Canary::default(), false);
    let canary = Canary::default();
    let report = recover(&scheme, &*device, BLOCKS, canary, false, &mut |_, _| {}).unwrap();
    assert_eq!(report.transactions, 1);
}
