//! A device that keeps only what was flushed, and the end of a journal.
use std::sync::Arc;
use std::time::Duration;

use crate::common::{ALL, BS, Kind, block, crashed, format, put, start};
use stetfs_block::{BlockDevice, MemDevice, Volatile};
use stetfs_journal::JournalError;

const BLOCKS: u64 = 12;

fn home(n: u64) -> u64 {
    400 + n % BLOCKS
}

/// All committed content is there at every moment, over several laps of the log, with checkpoints.
#[test]
fn what_was_committed_is_kept_at_every_moment() {
    for kind in ALL {
        let device = Arc::new(Volatile::new(format(kind), Duration::ZERO));
        let (cache, journal) = start(kind, device.clone());
        let mut committed = vec![0; BLOCKS as usize];
        let all_there = |committed: &[u8], when: &str| {
            let left = crashed(kind, &device.kept());
            for n in 0..BLOCKS {
                let expected = vec![committed[n as usize]; BS];
                assert_eq!(block(&left, home(n)), expected, "{kind:?}, {when}, {n}");
            }
        };
        for round in 1..=200_u8 {
            let n = u64::from(round) * 5;
            // Three at a time fill the log sooner.
            for n in n..n + 3 {
                let point = put(&cache, &journal, home(n), round);
                if n % 2 == 0 {
                    journal.commit(&point).unwrap();
                }
            }
            journal.commit_all().unwrap();
            for n in n..n + 3 {
                committed[(n % BLOCKS) as usize] = round;
            }
            all_there(&committed, "committed");
            if round.is_multiple_of(40) {
                journal.checkpoint().unwrap();
                all_there(&committed, "after a checkpoint");
            }
        }
        journal.shutdown().unwrap();
        all_there(&committed, "after the end");
        // All is home, without a recovery.
        device.flush().unwrap();
        assert_eq!(
            block(&device.kept(), home(0))[0],
            committed[(home(0) - 400) as usize]
        );
    }
}

/// A journal that is dropped without a shutdown leaves no thread behind that holds the device.
#[test]
fn a_dropped_journal_lets_go_of_its_device() {
    for kind in [Kind::Jbd2, Kind::Stet, Kind::Frame] {
        let device: Arc<MemDevice> = Arc::new(format(kind));
        let (cache, journal) = start(kind, device.clone());
        put(&cache, &journal, 400, 1);
        assert!(!journal.is_awaited(), "nobody waits");
        drop((cache, journal));
        assert_eq!(Arc::strong_count(&device), 1, "{kind:?}");
    }
}

/// A stopped journal reports the cause, and later callers get it, too.
#[test]
fn a_stopped_journal_says_why() {
    for kind in [Kind::Jbd2, Kind::Stet, Kind::Frame] {
        let device = Arc::new(Volatile::new(format(kind), Duration::ZERO));
        let (cache, journal) = start(kind, device.clone());
        assert!(journal.aborted().is_none());
        let point = put(&cache, &journal, 400, 1);
        device.fail_flushes(1);
        let told = journal.commit(&point).unwrap_err();
        let why = journal.aborted().expect("it stopped");
        assert!(!why.to_string().is_empty() && !told.to_string().is_empty());
        assert!(
            matches!(journal.begin(1), Err(JournalError::Aborted { .. })),
            "{kind:?}"
        );
        assert!(
            journal.commit(&point).is_err(),
            "{kind:?}: the flushes go again"
        );
        assert!(journal.shutdown().is_err(), "{kind:?}");
        let left = crashed(kind, &device.kept());
        assert_ne!(block(&left, 400), [1; BS], "{kind:?}");
    }
}
