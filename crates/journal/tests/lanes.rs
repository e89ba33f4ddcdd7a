//! Transactions of several lanes that share blocks: the engine's guarantees, whatever happens
//! between two of its steps.
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::lanes::{LONG, Volume, committing, on, tx};
use crate::common::{BS, block};
use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, RecoveryOptions};

/// A lane is locked and waits for a handle. A thread that changes a block which the lane lists does
/// not wait, because that handle may need a lock that the thread holds. The commit continues only
/// with both transactions (tx.T4).
#[test]
fn who_touches_a_locked_lane_joins_its_commit() {
    let v = Volume::new();
    on(1);
    let open = v.journal.begin(1).unwrap();
    let shared = v.cache.get(400);
    open.create(&shared).unwrap()[0] = 1;
    let locked = v.journal.hold("group-locked");
    let done = committing(&v, open.point());
    locked.await_one();
    std::thread::scope(|scope| {
        let (stop, may_stop) = mpsc::channel::<()>();
        let (changed, is_changed) = mpsc::channel();
        let (v, shared) = (&v, &shared);
        scope.spawn(move || {
            on(0);
            let ours = v.journal.begin(1).unwrap();
            ours.modify(shared).unwrap()[1] = 2;
            changed.send(()).unwrap();
            may_stop.recv().unwrap();
        });
        is_changed.recv_timeout(LONG).unwrap();
        let grown = v.journal.hold("group-locked");
        drop(locked);
        open.stop();
        // The lane's own handles have stopped; the commit comes again, for the other lane.
        grown.await_one();
        assert!(done.try_recv().is_err(), "it was told too early");
        drop(grown);
        stop.send(()).unwrap();
    });
    done.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(block(&*v.cut().0, 400)[..2], [1, 2]);
}

/// The action of another lane on a block whose image is being taken, or is taken and not listed
/// yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Changes,
    Frees,
    ChangesAndFrees,
}

/// A snapshot is under way. A thread that changes one of its blocks does not wait, and the change
/// is not in the snapshot. If the thread frees the block, the image is not replayed over the
/// block's next content (tx.T3, tx.T4, tx.T5).
#[test]
fn a_snapshot_has_no_later_change() {
    for then in [Then::Changes, Then::Frees, Then::ChangesAndFrees] {
        for place in ["snapshot-begins", "snapshot-not-indexed"] {
            let expected = if then == Then::Changes { 2 } else { 9 };
            let is = beside_a_snapshot(then, place, Canary::default());
            assert_eq!(is, expected, "{then:?}, {place}");
        }
    }
    let canary = Canary {
        index_late: true,
        ..Canary::default()
    };
    let is = beside_a_snapshot(Then::ChangesAndFrees, "snapshot-begins", canary);
    assert_eq!(is, 1, "the older image is replayed");
}

/// The content of block 400 in the end.
fn beside_a_snapshot(then: Then, place: &'static str, canary: Canary) -> u8 {
    let v = Volume::with_fault(3, 0, canary);
    let point = v.put(1, 400, 1);
    let held = v.journal.hold(place);
    let done = committing(&v, point);
    held.await_one();
    if then != Then::Frees {
        v.put(0, 400, 2);
    }
    let ours = match then {
        Then::Changes => v.put(0, 402, 2),
        _ => v.free(0, 400),
    };
    drop(held);
    done.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(block(&*v.cut().0, 400)[0], 1);
    v.journal.commit(&ours).unwrap();
    if then != Then::Changes {
        v.device.write(400 * BS as u64, &[9; BS]).unwrap();
    }
    block(&*v.cut().0, 400)[0]
}

/// A checkpoint writes the newest image of a block home, but not all images of an older transaction
/// that has one, too. As long as the older transaction is in its log, so is the newer one
/// (checkpoint.K3).
#[test]
fn an_older_image_is_not_left_alone_in_the_log() {
    assert_eq!(after_a_checkpoint(Canary::default()), [3, 2]);
    let canary = Canary {
        reap_alone: true,
        ..Canary::default()
    };
    assert_eq!(
        after_a_checkpoint(canary),
        [2, 2],
        "the older one is replayed"
    );
}

/// The content of blocks 400 and 401 after a cut.
fn after_a_checkpoint(canary: Canary) -> [u8; 2] {
    let v = Volume::with_fault(3, 0, canary);
    let first = v.put(2, 400, 1);
    v.journal.commit(&first).unwrap();
    let listed = v.journal.hold("checkpoint-listed");
    std::thread::scope(|scope| {
        let round = scope.spawn(|| v.journal.checkpoint());
        listed.await_one();
        v.put(0, 400, 2);
        let older = v.put(0, 401, 2);
        v.journal.commit(&older).unwrap();
        let newer = v.put(1, 400, 3);
        v.journal.commit(&newer).unwrap();
        drop(listed);
        round.join().unwrap().unwrap();
    });
    let device = v.cut().0;
    let is = [400, 401].map(|nr| block(&*device, nr)[0]);
    v.journal.checkpoint().unwrap();
    let left = v.cut().1.report.transactions;
    assert_eq!(left, 0, "all of it is home now");
    is
}

/// Threads in lanes of their own change shared blocks. Each block counts its changes, and so does a
/// block of each thread. After a cut all or none of each handle's changes are there (tx.T1).
#[test]
fn threads_that_share_blocks_lose_nothing() {
    const THREADS: u16 = 6;
    let v = Volume::new();
    let end = std::time::Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let v = &v;
            scope.spawn(move || {
                on(t % 3);
                let mine = v.cache.get(500 + u64::from(t));
                for i in 1u64.. {
                    let handle = v.journal.begin(2).unwrap();
                    let bump = |block: &Arc<stetfs_journal::Block>| {
                        let mut bytes = handle.modify(block).unwrap();
                        let count = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 1;
                        bytes[..8].copy_from_slice(&count.to_le_bytes());
                    };
                    bump(&v.cache.read(510 + (i + u64::from(t)) % 3).unwrap());
                    v.cache.read(mine.nr()).unwrap();
                    bump(&mine);
                    let point = handle.stop();
                    if i.is_multiple_of(7) {
                        v.journal.commit(&point).unwrap();
                        let counted = counts(&*v.cut().0, mine.nr());
                        assert!(counted >= i, "{counted} of {i} changes are durable");
                    }
                    if std::time::Instant::now() > end {
                        return;
                    }
                }
            });
        }
        for _ in 0..200 {
            let (device, found) = v.cut();
            let of_threads: u64 = (0..u64::from(THREADS))
                .map(|t| counts(&*device, 500 + t))
                .sum();
            let shared: u64 = (0..3).map(|nr| counts(&*device, 510 + nr)).sum();
            assert_eq!(of_threads, shared, "{:?}", found.report);
        }
    });
}

fn counts(device: &dyn BlockDevice, nr: u64) -> u64 {
    u64::from_le_bytes(block(device, nr)[..8].try_into().unwrap())
}

/// A block that one lane changed and another frees is in neither lane's log, and both transactions
/// count, or neither. (tx.T2)
#[test]
fn what_another_lane_frees_is_not_logged() {
    for first in [0, 1] {
        let v = Volume::new();
        let points = [v.put(0, 400, 1), v.free(1, 400)];
        v.journal.commit(&points[first]).unwrap();
        v.journal.commit_all().unwrap();
        let (device, found) = v.cut();
        assert!(block(&*device, 400) == [0; BS], "{:?}", found.report);
        // The block can be reused, for content that is not journaled.
        v.device.write(400 * BS as u64, &[9; BS]).unwrap();
        v.journal.checkpoint().unwrap();
        assert!(block(&*v.device, 400) == [9; BS]);
        assert!(block(&*v.cut().0, 400) == [9; BS]);
    }
}

/// The same with a change that is committed already, and still in the log (tx.T5).
#[test]
fn what_another_lane_frees_is_revoked() {
    let v = Volume::new();
    let point = v.put(0, 400, 1);
    v.journal.commit(&point).unwrap();
    let point = v.free(1, 400);
    v.journal.commit(&point).unwrap();
    v.device.write(400 * BS as u64, &[9; BS]).unwrap();
    assert!(block(&*v.cut().0, 400) == [9; BS]);
}

/// A commit supersedes the records whose changes it holds, and no others (record.F1, record.F3).
#[test]
fn a_record_lives_until_the_lane_commits_that_its_changes_are_in() {
    let v = Volume::with_records();
    let point = v.put(1, 400, 1);
    v.record(b"one");
    for value in 0..3 {
        let other = v.put(0, 401, value);
        v.journal.commit(&other).unwrap();
        v.journal.checkpoint().unwrap();
        let records = v.cut().1.records;
        assert_eq!(records.len(), 1, "after {value} commits of another lane");
        assert_eq!(records[0].body, b"one");
    }
    v.journal.commit(&point).unwrap();
    assert!(v.cut().1.records.is_empty());
}

/// A lane without changes keeps no record alive.
#[test]
fn idle_lanes_hold_nothing_back() {
    let v = Volume::with_records();
    v.put(1, 402, 1);
    v.journal.commit_all().unwrap();
    for i in 0..100 {
        let point = v.put(0, 400, i);
        v.record(&[i; 1500]);
        v.journal.commit(&point).unwrap();
    }
}

/// Edges in both directions over three lanes: all or nothing, whichever is requested (tx.T4).
#[test]
fn what_is_chained_commits_together() {
    for asked in 0..3 {
        let v = Volume::new();
        let points = [v.put(0, 400, 1), v.put(1, 400, 2), v.put(2, 401, 3)];
        v.put(1, 401, 4);
        v.put(2, 402, 5);
        v.journal.commit(&points[asked]).unwrap();
        let (device, found) = v.cut();
        let is = |nr: u64| block(&*device, nr)[0];
        assert_eq!([is(400), is(401), is(402)], [2, 4, 5], "{:?}", found.report);
    }
}

/// Two lanes commit together, and a crash leaves only one of them: a record whose changes are in
/// the missing one stays alive (record.F3).
#[test]
fn half_a_group_supersedes_no_records() {
    for missing in 0..2 {
        let v = Volume::with_records();
        v.put(0, 400, 1);
        v.put(1, 401, 1);
        v.record(b"one");
        v.journal.commit_all().unwrap();
        assert!(v.cut().1.records.is_empty());
        let device = v.without(tx(missing, 1));
        let found = v.recover(&device, RecoveryOptions::default()).unwrap();
        assert_eq!(found.records.len(), 1, "{:?}", found.report);
    }
}

/// A commit takes one flush, whatever the number of its lanes; the first commit takes one more, for
/// the header.
#[test]
fn a_group_is_sealed_by_one_flush() {
    for lanes in [1, 2, 3] {
        let v = Volume::with(lanes, 0);
        for expected in [2, 1, 1] {
            let before = v.device.stats().flushes;
            for lane in 0..lanes {
                v.put(lane, 400 + u64::from(lane), 1);
            }
            v.journal.commit_all().unwrap();
            assert_eq!(v.device.stats().flushes - before, expected, "{lanes} lanes");
        }
    }
}

/// With FUA a commit takes no flush, if all other writes are durable.
#[test]
fn a_group_needs_no_flush_where_the_device_has_fua() {
    for lanes in [1, 2, 3] {
        let v = Volume::with_fua(lanes);
        let commit = |expected: u64| {
            let before = v.device.stats().flushes;
            (0..lanes).for_each(|lane| drop(v.put(lane, 400 + u64::from(lane), 1)));
            v.journal.commit_all().unwrap();
            assert_eq!(v.device.stats().flushes - before, expected, "{lanes} lanes");
        };
        // The header is written with FUA, too.
        commit(0);
        v.seen.write(900 * BS as u64, &[1; BS]).unwrap();
        commit(1);
        commit(0);
    }
}

/// One lane is busy, and the others have never been used. The thread continues in their logs, and
/// its last changes count.
#[test]
fn a_full_lane_goes_on_in_the_log_of_an_idle_one() {
    let v = Volume::new();
    let listed = v.journal.hold("checkpoint-listed");
    let mut last = 0;
    for i in 0..2000 {
        last = (i % 251) as u8;
        // The blocks that it changes are in transactions of the full lane.
        for nr in 400..404 {
            let point = v.put(0, nr, last);
            if nr == 403 {
                v.journal.commit(&point).unwrap();
            }
        }
        if v.journal.stats().borrowed > 40 {
            break;
        }
    }
    let stats = v.journal.stats();
    assert!(stats.borrowed > 40, "{stats:?}");
    assert_eq!((stats.waits_room, stats.forced_checkpoints), (0, 0));
    let (device, recovery) = v.cut();
    assert_eq!(block(&*device, 400)[0], last);
    assert_eq!(block(&*device, 403)[0], last);
    assert!(recovery.report.dropped.is_empty(), "{recovery:?}");
    drop(listed);
    v.journal.checkpoint().unwrap();
    assert_eq!(block(&*v.device, 403)[0], last);
}
