//! The tail of the log, and slow writes of images to their home locations.
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::frame::use_lane;
use crate::common::{ALL, BS, Kind, block, crashed, put, start};
use stetfs_block::Gate;

/// The bytes of a block on the device.
fn bytes_of(nr: u64) -> Range<u64> {
    nr * BS as u64..(nr + 1) * BS as u64
}

/// A transaction frees a block that is being written home. It is durable, and waits for the write
/// before it is valid. After the write the checkpoint moves the tail, but not past the transaction
/// that waited: its own images are not home (checkpoint.K2).
#[test]
fn the_tail_stays_before_a_transaction_that_waited_for_home_writes() {
    for kind in ALL {
        let device = Arc::new(crate::common::format(kind));
        let gate = Arc::new(Gate::new(device.clone()));
        let (cache, journal) = start(kind, gate.clone());
        let journal = &journal;
        journal.commit(&put(&cache, journal, 300, 1)).unwrap();
        let shut = gate.shut_at(bytes_of(300));
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(move || journal.checkpoint());
            shut.await_one();
            let handle = journal.begin(2).unwrap();
            handle.revoke(300, 1).unwrap();
            handle.create(&cache.get(400)).unwrap().fill(4);
            let point = handle.stop();
            let waits = journal.hold("waits-for-home-writes");
            let commit = scope.spawn(move || journal.commit(&point));
            let until = Instant::now() + Duration::from_secs(20);
            while block(&crashed(kind, &device), 400) != [4; BS] {
                assert!(
                    Instant::now() < until,
                    "{kind:?}: it does not become durable"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            // The transaction is durable now. While it waits it lets go of the list, which the
            // checkpoint takes next.
            waits.await_one();
            drop(waits);
            drop(shut);
            checkpoint.join().unwrap().unwrap();
            commit.join().unwrap().unwrap();
        });
        assert_eq!(
            block(&crashed(kind, &device), 400),
            [4; BS],
            "{kind:?}: an acknowledged transaction is gone"
        );
    }
}

/// Two lanes commit together, and one of them frees a block that is being written home. While it
/// waits for the write the other is in the checkpoint list already. So that one is valid from then
/// on (checkpoint.K1), and a checkpoint may take it.
#[test]
fn what_waits_to_go_home_is_valid() {
    let gate = Arc::new(Gate::new(crate::common::format(Kind::Frame)));
    let (cache, journal) = start(Kind::Frame, gate.clone());
    let journal = &journal;
    use_lane(1);
    journal.commit(&put(&cache, journal, 300, 1)).unwrap();
    let shut = gate.shut_at(bytes_of(300));
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(move || journal.checkpoint());
        shut.await_one();
        let handle = journal.begin(1).unwrap();
        handle.revoke(300, 1).unwrap();
        let frees = handle.stop();
        use_lane(0);
        let beside = put(&cache, journal, 400, 4);
        let waits = journal.hold("waits-for-home-writes");
        let mut both = beside.clone();
        both.merge(&frees);
        let commit = scope.spawn(move || journal.commit(&both));
        waits.await_one();
        let (is_valid, too_early) = (journal.is_valid(&beside), journal.is_valid(&frees));
        drop(waits);
        drop(shut);
        checkpoint.join().unwrap().unwrap();
        commit.join().unwrap().unwrap();
        assert!(is_valid, "its image is to go home, and it does not count");
        assert!(
            !too_early,
            "it counts before the home write of what it frees"
        );
    });
}
