//! Copies of pages that a snapshot holds: by the next writer, or ahead of it by the commit. Neither
//! waits, and the log is the same.
use crate::common::lanes::{LONG, Volume, committing};
use crate::common::{BLOCKS, BS, LOG, block};
use stetfs_block::BlockDevice;
use stetfs_journal::JournalStats;
use stetfs_journal::policy::Copies;

const BOTH: [Copies; 2] = [Copies::OnWrite, Copies::Proactive];
/// The first of the blocks that each lane changes: they and their neighbours share nothing.
const FIRST: u64 = 400;
const EACH: u64 = 5;

fn homes(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; (BLOCKS - LOG) as usize * BS];
    device.read(LOG * BS as u64, &mut bytes).unwrap();
    bytes
}

/// The pages that writers copied, and those that commits copied.
fn copied(stats: JournalStats) -> (u64, u64) {
    let bytes = [stats.copies_bytes, stats.copies_ahead_bytes];
    let pages = [stats.copies, stats.copies_ahead];
    assert_eq!(bytes, pages.map(|n| n * BS as u64));
    (stats.copies, stats.copies_ahead)
}

/// Changes a byte of each block of a lane.
fn change(v: &Volume, lane: u16, value: u8) -> stetfs_journal::CommitPoint {
    crate::common::lanes::on(lane);
    let handle = v.journal.begin(EACH as u32).unwrap();
    for nr in FIRST..FIRST + EACH {
        let block = v.cache.read(nr).unwrap();
        handle.modify(&block).unwrap()[usize::from(value)] = value;
    }
    handle.stop()
}

/// While a write of the log hangs, writers of the same and of another lane change its blocks and
/// complete. The commit has the content from before (tx.T3, tx.T4).
#[test]
fn nobody_waits_while_the_log_is_written() {
    let mut recovered = Vec::new();
    for copies in BOTH {
        let v = Volume::with_copies(copies);
        let point = change(&v, 0, 1);
        let shut = v.gate.shut();
        let done = committing(&v, point);
        shut.await_one();
        let (lane, other) = (change(&v, 0, 2), change(&v, 1, 3));
        assert!(done.try_recv().is_err(), "the log is not written yet");
        let expected = match copies {
            Copies::OnWrite => (EACH, 0),
            Copies::Proactive => (0, EACH),
        };
        assert_eq!(copied(v.journal.stats()), expected, "{copies:?}");
        drop(shut);
        done.recv_timeout(LONG).unwrap().unwrap();
        let first = v.cut().0;
        for nr in FIRST..FIRST + EACH {
            assert_eq!(block(&*first, nr)[1..4], [1, 0, 0], "{copies:?}");
        }
        v.journal.commit(&lane).unwrap();
        v.journal.commit(&other).unwrap();
        let second = v.cut().0;
        for nr in FIRST..FIRST + EACH {
            assert_eq!(block(&*second, nr)[1..4], [1, 2, 3], "{copies:?}");
        }
        recovered.push([homes(&*first), homes(&*second)]);
        v.journal.checkpoint().unwrap();
        assert!(homes(&*v.device) == homes(&*second), "{copies:?}");
    }
    assert!(recovered[0] == recovered[1], "the logs say the same");
}

/// A writer that comes between the snapshot and the commit's copies makes its own copy; the commit
/// then leaves that page as it is.
#[test]
fn a_page_is_copied_once() {
    let v = Volume::with_copies(Copies::Proactive);
    let point = change(&v, 0, 1);
    let held = v.journal.hold("copies-ahead");
    let done = committing(&v, point);
    held.await_one();
    v.put(1, FIRST, 9);
    crate::common::lanes::on(1);
    let handle = v.journal.begin(1).unwrap();
    let shared = v.cache.read(FIRST + 1).unwrap();
    handle.modify(&shared).unwrap()[2] = 2;
    drop(handle);
    drop(held);
    done.recv_timeout(LONG).unwrap().unwrap();
    // A block that is filled anew takes another page, so nothing is copied for it.
    assert_eq!(copied(v.journal.stats()), (1, EACH - 2));
    let device = v.cut().0;
    for nr in FIRST..FIRST + EACH {
        assert_eq!(block(&*device, nr)[..4], [0, 1, 0, 0], "block {nr}");
    }
}

/// Times are counted only for what happened: without copies and waits they are 0.
#[test]
fn time_is_counted_where_it_is_spent() {
    for copies in BOTH {
        let v = Volume::with_copies(copies);
        for value in 1..100 {
            let point = change(&v, 0, value);
            v.journal.commit(&point).unwrap();
        }
        let stats = v.journal.stats();
        let spent = [stats.copying_nanos, stats.copying_ahead_nanos].map(|nanos| nanos > 0);
        assert_eq!(
            spent,
            [copies == Copies::OnWrite, copies == Copies::Proactive]
        );
        assert_eq!((stats.waits_locked, stats.waiting_locked_nanos), (0, 0));
    }
}

/// A writer that waits for the snapshot of its lane is counted, with its time.
#[test]
fn a_wait_for_a_locked_transaction_is_timed() {
    let v = Volume::with_copies(Copies::OnWrite);
    let point = change(&v, 0, 1);
    let held = v.journal.hold("group-locked");
    let done = committing(&v, point);
    held.await_one();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| change(&v, 0, 2));
        while v.journal.stats().waits_locked == 0 {
            std::thread::yield_now();
        }
        drop(held);
        writer.join().unwrap();
    });
    done.recv_timeout(LONG).unwrap().unwrap();
    assert!(v.journal.stats().waiting_locked_nanos > 0);
}
