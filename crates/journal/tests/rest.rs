//! Tests of a journal at rest: nothing begins, and nothing is written (rest.R1).
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::common::lanes::{LONG, Volume, on};
use crate::common::{BS, block};
use stetfs_journal::{Canary, Wait};

/// A time long enough for work that nothing holds back.
const SHORT: Duration = Duration::from_millis(200);

fn waits<T>(answer: &Receiver<T>) {
    assert!(matches!(
        answer.recv_timeout(SHORT),
        Err(RecvTimeoutError::Timeout)
    ));
}

/// A home block of the volume.
const HOME: u64 = 400;

#[test]
fn handles_wait_for_a_journal_at_rest() {
    let v = Volume::new();
    for lane in 0..3 {
        v.put(lane, HOME + u64::from(lane), 1);
    }
    v.journal.rest().unwrap();
    let before = v.device.to_vec();
    thread::scope(|scope| {
        let (done, is_done) = channel();
        for lane in 0..3 {
            let (v, done) = (&v, done.clone());
            scope.spawn(move || {
                let point = v.put(lane, HOME + u64::from(lane), 2);
                done.send(v.journal.commit(&point)).unwrap();
            });
        }
        waits(&is_done);
        // Syncs have nothing to do, and checkpoints nothing to send.
        v.journal.commit_all().unwrap();
        v.journal.checkpoint().unwrap();
        assert!(v.device.to_vec() == before, "something was written");
        v.journal.resume().unwrap();
        waits(&is_done);
        v.journal.wake();
        for _ in 0..3 {
            is_done.recv_timeout(LONG).unwrap().unwrap();
        }
    });
    let (device, _) = v.cut();
    for lane in 0..3 {
        assert_eq!(block(&*device, HOME + lane), vec![2; BS]);
    }
    v.journal.shutdown().unwrap();
}

/// A handle that waits at the gate when the journal stops gets the error.
#[test]
fn handles_that_wait_are_told_of_a_stop() {
    let v = Volume::new();
    v.journal.rest().unwrap();
    thread::scope(|scope| {
        let (done, is_done) = channel();
        let v = &v;
        scope.spawn(move || {
            on(0);
            done.send(v.journal.begin(1).is_err()).unwrap();
        });
        waits(&is_done);
        let why = stetfs_journal::JournalError::Aborted("a test".into());
        v.journal.abort(why);
        assert!(is_done.recv_timeout(LONG).unwrap());
    });
}

/// A sync has reserved space for a record and not written it: rest waits for it, and no other
/// record gets space.
#[test]
fn rest_waits_for_records() {
    let v = Volume::with_records();
    v.put(0, HOME, 1);
    let records = v.journal.records().unwrap();
    let place = records.reserve(9, 0, None).unwrap();
    thread::scope(|scope| {
        let (done, is_done) = channel();
        let v = &v;
        scope.spawn(move || done.send(v.journal.rest()).unwrap());
        waits(&is_done);
        assert!(records.reserve(9, 0, None).is_none());
        records.write(&place, b"synced it", &[]).unwrap();
        drop(place);
        is_done.recv_timeout(LONG).unwrap().unwrap();
        assert!(records.reserve(9, 0, None).is_none());
        v.journal.resume().unwrap();
        v.journal.wake();
        v.record(b"and after");
    });
    v.journal.shutdown().unwrap();
    assert!(records.reserve(9, 0, None).is_none(), "of a closed log");
}

/// A record is not written to the log of a stopped journal, and its sync fails.
#[test]
fn a_stopped_journal_takes_no_record() {
    let v = Volume::with_records();
    let records = v.journal.records().unwrap();
    let place = records.reserve(9, 0, None).unwrap();
    let before = v.device.to_vec();
    v.journal
        .abort(stetfs_journal::JournalError::Aborted("a test".into()));
    records.write(&place, b"synced it", &[]).unwrap_err();
    assert!(v.device.to_vec() == before);
}

/// A deliberate fault leaves the gate open: a write then stops the journal.
#[test]
fn a_write_at_rest_stops_the_journal() {
    let canary = Canary {
        use_at_rest: true,
        ..Canary::default()
    };
    let v = Volume::with_fault(2, 0, canary);
    v.put(0, HOME, 1);
    v.journal.rest().unwrap();
    let point = v.put(1, HOME + 1, 1);
    let before = v.device.to_vec();
    let (done, is_done) = channel();
    let answer = Box::new(move |r| done.send(r).unwrap());
    v.journal.sync(point, Vec::new(), Wait::Deferred, answer);
    let refused = is_done.recv_timeout(LONG).unwrap().unwrap_err().to_string();
    assert!(refused.contains("rest.R1"), "{refused}");
    assert!(v.device.to_vec() == before);
}
