//! Commits side by side: each lane has commit leaders of its own (`Ordering::commits_apart`).
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::block;
use crate::common::lanes::{LONG, Volume, committing, on, tx};
use stetfs_block::BlockDevice;
use stetfs_journal::{Canary, CommitPoint, JournalError, RecoveryOptions};

/// A time in which something that must not happen would have happened.
const SOON: Duration = Duration::from_millis(200);

/// A volume whose log is in use: its header names the first frame of each lane.
fn in_use() -> Volume {
    used(Canary::default())
}

fn used(canary: Canary) -> Volume {
    let v = Volume::with_fault(3, 0, canary);
    (0..3).for_each(|lane| drop(v.put(lane, 390 + u64::from(lane), 1)));
    v.journal.commit_all().unwrap();
    v
}

/// A lane's commit does not wait for that of another lane with which it shares nothing.
#[test]
fn lanes_that_share_nothing_do_not_wait_for_each_other() {
    let v = in_use();
    let shut = v.gate.shut_at(v.ring(1));
    let held = committing(&v, v.put(1, 401, 7));
    shut.await_one();
    for value in 0..20 {
        let point = v.put(0, 400, value);
        v.journal.commit(&point).unwrap();
    }
    assert!(held.try_recv().is_err());
    let is = |nr| block(&*v.cut().0, nr)[0];
    assert_eq!([is(400), is(401)], [19, 0]);
    drop(shut);
    held.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(block(&*v.cut().0, 401)[0], 7);
}

/// A transaction that depends on one that another thread commits is durable, but is not told to be
/// until that one is (commit.A1).
#[test]
fn what_depends_on_another_commit_waits_for_it() {
    let v = in_use();
    let shut = v.gate.shut_at(v.ring(1));
    let first = committing(&v, v.put(1, 400, 1));
    shut.await_one();
    let second = committing(&v, v.put(0, 400, 2));
    assert!(second.recv_timeout(SOON).is_err(), "it was told too early");
    assert_eq!(block(&*v.cut().0, 400)[0], 0, "it does not count alone");
    assert_eq!(v.scan(&(v.cut().0), 0).len(), 0, "recovery emptied the log");
    drop(shut);
    first.recv_timeout(LONG).unwrap().unwrap();
    second.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(block(&*v.cut().0, 400)[0], 2);
}

/// A request that names a running transaction without content waits for the one before it, which
/// another thread commits.
#[test]
fn what_holds_nothing_waits_for_what_came_before() {
    let v = in_use();
    let shut = v.gate.shut_at(v.ring(1));
    let first = committing(&v, v.put(1, 401, 1));
    shut.await_one();
    let all = committing(&v, v.journal.everything());
    let lane = committing(&v, CommitPoint::from(tx(1, 3)));
    assert!(all.recv_timeout(SOON).is_err() && lane.try_recv().is_err());
    drop(shut);
    for done in [first, all, lane] {
        done.recv_timeout(LONG).unwrap().unwrap();
    }
}

/// A group of lanes 0 and 1 is led in the queue of lane 0. The next transaction of lane 1, which
/// is led in another queue, is not written before the group is durable (commit.A2).
#[test]
fn a_lane_is_written_in_its_order() {
    assert_eq!(in_order(Canary::default()), Ok([3, 2]));
    let canary = Canary {
        out_of_turn: true,
        ..Canary::default()
    };
    let refused = in_order(canary).unwrap_err();
    assert!(refused.contains("was committed"), "{refused}");
}

/// The content of blocks 401 and 402 after a cut with the group's frame held back, where something
/// is committed then, and without one where nothing is.
fn in_order(canary: Canary) -> Result<[u8; 2], String> {
    let v = used(canary);
    let shut = v.gate.shut_at(v.ring(0));
    let group = v.put(0, 400, 2);
    v.put(1, 400, 2);
    v.put(1, 402, 2);
    // The group's frames are one write.
    let group = committing(&v, group);
    shut.await_one();
    let next = committing(&v, v.put(1, 401, 3));
    let told = next.recv_timeout(SOON);
    let device: Arc<dyn BlockDevice> = Arc::new(v.device.fork());
    let found = v.recover(&device, RecoveryOptions::default());
    drop(shut);
    found.map_err(|e| e.to_string())?;
    assert!(told.is_err(), "it was told too early");
    assert_eq!(block(&*device, 401)[0], 0);
    group.recv_timeout(LONG).unwrap().unwrap();
    next.recv_timeout(LONG).unwrap().unwrap();
    let device = v.cut().0;
    Ok([401, 402].map(|nr| block(&*device, nr)[0]))
}

/// A thread validates a transaction and has not run its callbacks. Another that asked for it is not
/// answered before that is done: a callback may free what the answer says is free.
#[test]
fn an_answer_comes_after_the_callbacks() {
    for (canary, expected) in [
        (Canary::default(), false),
        (
            Canary {
                answer_unsettled: true,
                ..Canary::default()
            },
            true,
        ),
    ] {
        let v = used(canary);
        on(1);
        let handle = v.journal.begin(1).unwrap();
        handle.create(&v.cache.get(401)).unwrap()[0] = 1;
        let held = v.journal.hold("valid-not-settled");
        let (ran, has_run) = mpsc::channel();
        handle.after_commit(Box::new(move || ran.send(()).unwrap()));
        let point = handle.stop();
        let first = committing(&v, point);
        held.await_one();
        let second = committing(&v, CommitPoint::from(tx(1, 2)));
        let early = second.recv_timeout(SOON).is_ok();
        assert!(has_run.try_recv().is_err());
        assert_eq!(early, expected);
        drop(held);
        first.recv_timeout(LONG).unwrap().unwrap();
        if !early {
            second.recv_timeout(LONG).unwrap().unwrap();
        }
        has_run.recv_timeout(LONG).unwrap();
    }
}

/// A transaction began when its lane had room for it, and lost that to the one before it, which was
/// laid out later. Its commit waits for that one, then for a checkpoint (room.W1).
#[test]
fn a_ring_without_room_waits_for_older_commits() {
    let v = in_use();
    let third = v.journal.log_space().0 / 3;
    let listed = v.journal.hold("checkpoint-listed");
    let room = || v.journal.log_space().0 - 2 * third;
    while room() > 22 {
        let point = v.put(1, 401, 1);
        v.journal.commit(&point).unwrap();
    }
    let change = |value: u8| {
        on(1);
        let handle = v.journal.begin(10).unwrap();
        for nr in 500..510 {
            let block = v.cache.get(nr);
            let mut bytes = handle.create(&block).unwrap();
            // Content that cannot be packed.
            let mut word = nr << 8 | u64::from(value);
            for to in bytes.iter_mut() {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *to = (word >> 56) as u8;
            }
            bytes[0] = value;
        }
        handle.stop()
    };
    let prepared = v.journal.hold("group-prepared");
    let first = committing(&v, change(1));
    prepared.await_one();
    let second = committing(&v, change(2));
    drop(prepared);
    assert!(second.recv_timeout(SOON).is_err(), "there was room");
    drop(listed);
    first.recv_timeout(LONG).unwrap().unwrap();
    second.recv_timeout(LONG).unwrap().unwrap();
    assert!(v.journal.stats().forced_checkpoints > 0);
    assert_eq!(block(&*v.cut().0, 509)[0], 2);
}

/// A flush that fails while two commits are under way: neither is told of success.
#[test]
fn a_failure_stops_all_that_is_under_way() {
    let v = in_use();
    let shut = v.gate.shut();
    let commits = [0, 1].map(|lane| committing(&v, v.put(lane, 400 + u64::from(lane), 1)));
    shut.await_one();
    v.journal.abort(JournalError::Aborted("a test".into()));
    drop(shut);
    for done in commits {
        let told = done.recv_timeout(LONG).unwrap();
        assert!(told.unwrap_err().contains("a test"));
    }
}
