//! Commit leaders: threads that may wait, and the journal's own threads.
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::common::{ALL, BS, Kind, block, crashed, put, start};
use stetfs_block::{BlockDevice, MemDevice, Read, Stats, Write};
use stetfs_journal::Wait;

/// A device whose flushes take a while.
struct Slow {
    inner: MemDevice,
}

impl BlockDevice for Slow {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> stetfs_block::Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> stetfs_block::Result<()> {
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> stetfs_block::Result<()> {
        thread::sleep(Duration::from_millis(20));
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> stetfs_block::Result<()> {
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// Threads that sync again as soon as they are answered: each commit serves all of them, whether
/// they lead or are called back.
#[test]
fn who_comes_again_soon_shares_the_next_commit() {
    const SYNCS: u8 = 16;
    for (threads, here) in [(2, true), (4, true), (4, false)] {
        let inner = crate::common::format(Kind::Jbd2);
        let (cache, journal) = start(Kind::Jbd2, Arc::new(Slow { inner }));
        thread::scope(|scope| {
            for t in 0..threads {
                let (cache, journal) = (&cache, &journal);
                scope.spawn(move || {
                    for value in 1..=SYNCS {
                        let point = put(cache, journal, 300 + t, value);
                        let (answer, answered) = channel();
                        let done = Box::new(move |r| answer.send(r).unwrap());
                        let wait = if here { Wait::Inline } else { Wait::Deferred };
                        journal.sync(point, Vec::new(), wait, done);
                        answered.recv().unwrap().unwrap();
                    }
                });
            }
        });
        let commits = journal.stats().commits;
        assert!(
            commits < u64::from(SYNCS) * 3 / 2,
            "{commits} commits for {SYNCS} syncs of each of {threads} threads"
        );
        journal.shutdown().unwrap();
    }
}

/// queue.Q2.
#[test]
fn who_may_wait_has_the_answer_on_return() {
    for kind in ALL {
        let device = Arc::new(crate::common::format(kind));
        let (cache, journal) = start(kind, device.clone());
        let (answer, answered) = channel();
        for value in 1..20 {
            let answer = answer.clone();
            let point = put(&cache, &journal, 300, value);
            // The second sync has nothing left to commit.
            for upto in [point.clone(), point] {
                let (answer, me) = (answer.clone(), thread::current().id());
                journal.sync(
                    upto,
                    Vec::new(),
                    Wait::Inline,
                    Box::new(move |r| {
                        answer
                            .send(r.is_ok() && thread::current().id() == me)
                            .unwrap();
                    }),
                );
                assert!(answered.try_recv().unwrap(), "{kind:?}");
            }
            assert_eq!(block(&crashed(kind, &device), 300), [value; BS], "{kind:?}");
        }
        journal.shutdown().unwrap();
        let refused = Box::new(move |r: Result<(), _>| answer.send(r.is_err()).unwrap());
        journal.sync(journal.everything(), Vec::new(), Wait::Inline, refused);
        assert!(answered.try_recv().unwrap(), "{kind:?}");
    }
}

/// queue.Q1.
#[test]
fn leaders_and_the_commit_thread_take_turns() {
    for kind in ALL {
        let device = Arc::new(crate::common::format(kind));
        let (cache, journal) = start(kind, device.clone());
        thread::scope(|scope| {
            for t in 0..6 {
                let (cache, journal) = (&cache, &journal);
                scope.spawn(move || {
                    for value in 1..=40 {
                        let point = put(cache, journal, 300 + t, value);
                        if t % 2 == 0 {
                            journal.commit(&point).unwrap();
                            continue;
                        }
                        let (answer, answered) = channel();
                        let done = Box::new(move |r| answer.send(r).unwrap());
                        journal.sync(point.clone(), Vec::new(), Wait::Inline, done);
                        answered.recv().unwrap().unwrap();
                        assert!(journal.is_valid(&point), "{kind:?}");
                    }
                });
            }
        });
        let after = crashed(kind, &device);
        for t in 0..6 {
            assert_eq!(block(&after, 300 + t), [40; BS], "{kind:?}");
        }
    }
}

#[test]
fn an_answer_may_end_the_journal() {
    for kind in ALL {
        let device = Arc::new(crate::common::format(kind));
        let (cache, journal) = start(kind, device.clone());
        let point = put(&cache, &journal, 300, 1);
        let last = Arc::clone(&journal);
        journal.sync(
            point,
            Vec::new(),
            Wait::Inline,
            Box::new(move |r| {
                r.unwrap();
                last.shutdown().unwrap();
            }),
        );
        assert_eq!(block(&*device, 300), [1; BS], "{kind:?}");
    }
}
