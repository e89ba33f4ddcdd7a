//! Log space that checkpoints free is trimmed, once the tail is durably past it.
use std::sync::Arc;

use crate::common::{BS, Kind, block, crashed, format, frames, put, start};
use stetfs_block::{Event, Recorder};

/// Several laps of the ring, with a checkpoint after every few commits.
#[test]
fn freed_frames_are_gone_and_live_ones_stay() {
    for kind in [Kind::Stet, Kind::StetDiscard, Kind::StetZero] {
        let device = Arc::new(format(kind));
        let (cache, journal) = start(kind, device.clone());
        for round in 0..300u64 {
            let value = round as u8;
            journal
                .commit(&put(&cache, &journal, 300 + round % 7, value))
                .unwrap();
            if round % 5 == 0 {
                journal.checkpoint().unwrap();
                let left = frames(&device).len();
                match kind {
                    Kind::Stet => assert!(left > 0, "round {round}"),
                    _ => assert_eq!(left, 0, "{kind:?}, round {round}"),
                }
            }
            let now = crashed(kind, &device);
            assert_eq!(block(&now, 300 + round % 7), [value; BS], "{kind:?}");
        }
    }
}

/// Trimmed space is behind a tail that was flushed before (checkpoint.K2).
#[test]
fn the_tail_is_durable_first() {
    let device = Arc::new(Recorder::new(format(Kind::StetDiscard)));
    let (cache, journal) = start(Kind::StetDiscard, device.clone());
    journal.commit(&put(&cache, &journal, 300, 1)).unwrap();
    device.take_log();
    journal.checkpoint().unwrap();
    let log = device.take_log();
    let last = |f: fn(&Event) -> bool| log.events.iter().rposition(f);
    let discard = last(|e| matches!(e, Event::Discard { .. })).unwrap();
    let write = last(|e| matches!(e, Event::Write { .. })).unwrap();
    let flush = last(|e| matches!(e, Event::Flush { .. })).unwrap();
    assert!(
        write < flush && flush < discard,
        "{write} {flush} {discard}"
    );
}
