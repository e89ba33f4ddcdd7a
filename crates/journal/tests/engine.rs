//! The guarantees of the journal, tested by one suite for every scheme.
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{ALL, BLOCKS, BS, Kind, LOG, block, crashed, put, recover_at, start};
use proptest::prelude::*;
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_journal::{Canary, CommitPoint, JournalError, RecoveryOptions};

fn shared(device: &MemDevice) -> Arc<dyn BlockDevice> {
    Arc::new(device.fork())
}

/// A device, also to be inspected behind the journal's back.
fn volume(kind: Kind) -> Arc<MemDevice> {
    Arc::new(crate::common::format(kind))
}

#[test]
fn committed_changes_survive_a_crash_and_others_do_not() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        let point = put(&cache, &journal, 300, 7);
        journal.commit(&point).unwrap();
        put(&cache, &journal, 301, 8);
        assert_eq!(
            block(&*device, 300),
            [0; BS],
            "{kind:?}: nothing goes home at a commit"
        );
        let after = crashed(kind, &device);
        assert_eq!(block(&after, 300), [7; BS], "{kind:?}");
        assert_eq!(block(&after, 301), [0; BS], "{kind:?}");
    }
}

#[test]
fn a_clean_shutdown_brings_all_home_and_empties_the_log() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        for nr in 300..400 {
            put(&cache, &journal, nr, nr as u8);
        }
        journal.shutdown().unwrap();
        for nr in 300..400 {
            assert_eq!(block(&*device, nr), [nr as u8; BS], "{kind:?}");
        }
        let again: Arc<dyn BlockDevice> = device.clone();
        assert_eq!(
            recover_at(kind, &again, Canary::default()).transactions,
            0,
            "{kind:?}"
        );
        assert!(matches!(journal.begin(1), Err(JournalError::Aborted(_))));
        let (cache, journal) = start(kind, device.clone());
        journal.commit(&put(&cache, &journal, 300, 99)).unwrap();
        assert_eq!(
            block(&crashed(kind, &device), 300),
            [99; BS],
            "{kind:?}: a second life"
        );
    }
}

/// tx.T3, cache.C1.
#[test]
fn a_snapshot_is_not_touched_by_later_changes() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        journal.commit(&put(&cache, &journal, 300, 1)).unwrap();
        put(&cache, &journal, 300, 2);
        journal.checkpoint().unwrap();
        assert_eq!(
            block(&*device, 300),
            [1; BS],
            "{kind:?}: the committed image goes home, not the live page"
        );
        assert_eq!(cache.read(300).unwrap().page().unwrap()[0], 2);
    }
}

#[test]
fn a_block_that_begins_with_the_magic_comes_back_whole() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        let handle = journal.begin(1).unwrap();
        let b = cache.get(300);
        {
            let mut bytes = handle.create(&b).unwrap();
            bytes.fill(5);
            bytes[..4].copy_from_slice(&stetfs_ondisk::jbd2::MAGIC.to_be_bytes());
        }
        journal.commit(&handle.stop()).unwrap();
        let expected = b.page().unwrap();
        assert_eq!(
            block(&crashed(kind, &device), 300),
            expected[..],
            "{kind:?}"
        );
    }
}

/// A journaled block is freed, and reused for data that is written outside the journal.
fn reuse_after_revoke(kind: Kind) -> Arc<MemDevice> {
    let device = volume(kind);
    let (cache, journal) = start(kind, device.clone());
    journal.commit(&put(&cache, &journal, 300, 1)).unwrap();
    let handle = journal.begin(1).unwrap();
    handle.revoke(300, 1).unwrap();
    let keep = cache.get(400);
    handle.create(&keep).unwrap().fill(4);
    journal.commit(&handle.stop()).unwrap();
    device.write(300 * BS as u64, &[9; BS]).unwrap();
    device
}

#[test]
fn a_revoked_image_is_neither_replayed_nor_sent_home() {
    for kind in ALL {
        let device = reuse_after_revoke(kind);
        let after = crashed(kind, &device);
        assert_eq!(block(&after, 300), [9; BS], "{kind:?}");
        assert_eq!(block(&after, 400), [4; BS], "{kind:?}");
    }
    let device = volume(Kind::Jbd2);
    let (cache, journal) = start(Kind::Jbd2, device.clone());
    journal.commit(&put(&cache, &journal, 300, 1)).unwrap();
    let handle = journal.begin(1).unwrap();
    handle.revoke(300, 1).unwrap();
    journal.commit(&handle.stop()).unwrap();
    device.write(300 * BS as u64, &[9; BS]).unwrap();
    journal.checkpoint().unwrap();
    assert_eq!(
        block(&*device, 300),
        [9; BS],
        "a checkpoint leaves a freed block alone"
    );
}

#[test]
fn canary_ignored_revokes_are_noticed() {
    let device = shared(&reuse_after_revoke(Kind::Jbd2));
    recover_at(
        Kind::Jbd2,
        &device,
        Canary {
            ignore_revokes: true,
            ..Default::default()
        },
    );
    assert_eq!(
        block(&*device, 300),
        [1; BS],
        "without revokes the old image comes back"
    );
}

#[test]
fn callbacks_run_once_the_change_is_durable() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        let seen = Arc::new(AtomicU32::new(0));
        let handle = journal.begin(1).unwrap();
        let b = cache.get(300);
        handle.create(&b).unwrap().fill(3);
        let (counter, disk) = (seen.clone(), device.clone());
        handle.after_commit(Box::new(move || {
            assert_eq!(block(&crashed(kind, &disk), 300), [3; BS]);
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        let point = handle.stop();
        assert_eq!(seen.load(Ordering::SeqCst), 0);
        journal.commit(&point).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 1, "{kind:?}");
    }
}

#[test]
fn a_handle_that_no_transaction_can_hold_is_refused() {
    let (_, journal) = start(Kind::Jbd2, volume(Kind::Jbd2));
    let max = journal.max_credits();
    assert!(u64::from(max) <= LOG / 4);
    assert!(matches!(
        journal.begin(max + 1),
        Err(JournalError::TooLarge { .. })
    ));
    assert!(journal.begin(max).is_ok());
}

#[test]
fn the_horizon_only_rises_and_waits_for_validity() {
    let (cache, journal) = start(Kind::Jbd2, volume(Kind::Jbd2));
    put(&cache, &journal, 300, 1);
    journal.commit_all().unwrap();
    // Stamps up to the first commit's are taken.
    let first = journal.horizon();
    put(&cache, &journal, 300, 2);
    assert_eq!(journal.horizon(), first);
    journal.commit_all().unwrap();
    assert!(journal.horizon() > first);
}

#[test]
fn many_threads_share_commits_and_lose_nothing() {
    for kind in ALL {
        let device = volume(kind);
        let (cache, journal) = start(kind, device.clone());
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let (cache, journal) = (&cache, &journal);
                scope.spawn(move || {
                    crate::common::frame::use_lane(t as u16);
                    for round in 1..=60u8 {
                        for k in 0..3 {
                            // Blocks of its own, and one that all threads change.
                            put(cache, journal, 300 + t * 10 + k, round);
                            put(cache, journal, 290, round);
                        }
                        let point = put(cache, journal, 300 + t * 10 + 3, round);
                        if round % 3 == 0 {
                            journal.commit(&point).unwrap();
                        }
                    }
                });
            }
        });
        let after = crashed(kind, &device);
        for t in 0..4 {
            assert_eq!(block(&after, 300 + t * 10), [60; BS], "{kind:?} thread {t}");
        }
        let stats = journal.stats();
        assert!(
            stats.commits <= 2 * 4 * 20 + stats.waits_room,
            "{kind:?}: {stats:?}"
        );
    }
}

/// Two lanes change one block: both transactions count, or neither.
#[test]
fn chained_lanes_commit_together() {
    let device = volume(Kind::Frame);
    let (cache, journal) = start(Kind::Frame, device.clone());
    crate::common::frame::use_lane(0);
    let mut a = put(&cache, &journal, 300, 1);
    a.merge(&put(&cache, &journal, 500, 1));
    crate::common::frame::use_lane(1);
    put(&cache, &journal, 301, 2);
    let b = put(&cache, &journal, 500, 2);
    crate::common::frame::use_lane(0);
    assert_ne!(a.iter().next().unwrap().lane, b.iter().next().unwrap().lane);
    // A request for one commits both.
    journal.commit(&a).unwrap();
    let after = crashed(Kind::Frame, &device);
    assert_eq!(
        (
            block(&after, 300)[0],
            block(&after, 301)[0],
            block(&after, 500)[0]
        ),
        (1, 2, 2)
    );
    // Without the second lane's transaction the first is not valid either.
    let torn = device.fork();
    let second_lane = LOG / 2 + 1;
    torn.write(second_lane * BS as u64, &[0; BS]).unwrap();
    let torn: Arc<dyn BlockDevice> = Arc::new(torn);
    let report = recover_at(Kind::Frame, &torn, Canary::default());
    assert_eq!((report.transactions, report.invalid), (0, 1));
    assert_eq!(block(&*torn, 300), [0; BS]);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u8),
    Free(u64),
    Commit,
    Checkpoint,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (LOG..LOG + 40, 1..=255u8).prop_map(|(nr, v)| Op::Put(nr, v)),
        2 => (LOG..LOG + 40).prop_map(Op::Free),
        3 => Just(Op::Commit),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Crash),
    ]
}

/// Runs operations against a model. A crash leaves the state of one moment at or after the last
/// commit: the journal may commit by itself, but never half of an operation.
fn run_model(kind: Kind, ops: &[Op]) {
    let device = volume(kind);
    let (cache, journal) = start(kind, device.clone());
    let mut states: Vec<HashMap<u64, u8>> = vec![HashMap::new()];
    for op in ops {
        let mut live = states.last().unwrap().clone();
        match op {
            Op::Put(nr, v) => {
                put(&cache, &journal, *nr, *v);
                live.insert(*nr, *v);
                states.push(live);
            }
            Op::Free(nr) => {
                let handle = journal.begin(1).unwrap();
                handle.revoke(*nr, 1).unwrap();
                handle.stop();
                journal.commit_all().unwrap();
                // A freed block's content is undefined until it is used again.
                live.remove(nr);
                states = vec![live];
            }
            Op::Commit => {
                journal.commit_all().unwrap();
                states = vec![live];
            }
            Op::Checkpoint => journal.checkpoint().unwrap(),
            Op::Crash => {
                let after = crashed(kind, &device);
                let fits = |state: &HashMap<u64, u8>| {
                    state.iter().all(|(nr, v)| block(&after, *nr) == [*v; BS])
                };
                assert!(
                    states.iter().any(fits),
                    "{kind:?}: no state since the last commit"
                );
            }
        }
    }
    journal.shutdown().unwrap();
    for (nr, v) in states.last().unwrap() {
        assert!(
            block(&*device, *nr) == [*v; BS],
            "{kind:?} block {nr} after shutdown"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn whatever_was_committed_last_is_what_a_crash_leaves(ops in proptest::collection::vec(op(), 1..400)) {
        for kind in ALL {
            run_model(kind, &ops);
        }
    }
}

#[test]
fn the_ring_wraps_many_times() {
    for kind in ALL {
        let ops: Vec<Op> = (0..3000u64)
            .map(|i| match i % 11 {
                10 if i % 7 == 0 => Op::Crash,
                10 => Op::Commit,
                k => Op::Put(LOG + (i * 7 + k) % 40, (i % 250) as u8 + 1),
            })
            .collect();
        run_model(kind, &ops);
    }
}

#[test]
fn recovery_can_be_interrupted_and_repeated() {
    let device = volume(Kind::Jbd2);
    let (cache, journal) = start(Kind::Jbd2, device.clone());
    let mut point = CommitPoint::none();
    for nr in 300..340 {
        point.merge(&put(&cache, &journal, nr, nr as u8));
        journal.commit(&point).unwrap();
    }
    let once = crashed(Kind::Jbd2, &device);
    // The first recovery wrote half of its images home.
    let half = device.fork();
    for nr in 300..320 {
        half.write(nr * BS as u64, &block(&once, nr)).unwrap();
    }
    let twice = crashed(Kind::Jbd2, &half);
    for nr in LOG..BLOCKS {
        assert_eq!(block(&once, nr), block(&twice, nr));
    }
}

#[test]
fn a_damaged_image_of_a_committed_transaction_is_an_error_and_changes_nothing() {
    let device = volume(Kind::Jbd2);
    let (cache, journal) = start(Kind::Jbd2, device.clone());
    journal.commit(&put(&cache, &journal, 300, 7)).unwrap();
    // Log block 1 is the descriptor, 2 the image.
    device.write(2 * BS as u64 + 17, &[0xff]).unwrap();
    let copy: Arc<dyn BlockDevice> = Arc::new(device.fork());
    let scheme = crate::common::scheme(Kind::Jbd2, &copy, Canary::default(), false);
    let result = stetfs_journal::recover(
        &scheme,
        &*copy,
        BLOCKS,
        RecoveryOptions::default(),
        &mut |_, _| {},
    );
    assert!(matches!(result, Err(JournalError::Format(_))), "{result:?}");
    assert_eq!(block(&*copy, 300), [0; BS]);
    // The canary skips the check, and lets the damage through.
    let copy: Arc<dyn BlockDevice> = Arc::new(device.fork());
    recover_at(
        Kind::Jbd2,
        &copy,
        Canary {
            skip_checksums: true,
            ..Default::default()
        },
    );
    assert_eq!(block(&*copy, 300)[17], 0xff);
}

#[test]
fn a_missing_commit_block_undoes_the_whole_transaction() {
    let device = volume(Kind::Jbd2);
    let (cache, journal) = start(Kind::Jbd2, device.clone());
    journal.commit(&put(&cache, &journal, 300, 1)).unwrap();
    let handle = journal.begin(2).unwrap();
    for nr in [300, 301] {
        let b = cache.get(nr);
        handle.create(&b).unwrap().fill(2);
    }
    journal.commit(&handle.stop()).unwrap();
    // First transaction: blocks 1 to 3. Second: descriptor 4, images 5 and 6, commit block 7.
    device.write(7 * BS as u64, &[0; BS]).unwrap();
    let after = crashed(Kind::Jbd2, &device);
    assert_eq!((block(&after, 300)[0], block(&after, 301)[0]), (1, 0));
}
