//! Transactions of several lanes that share blocks: what the engine owes them whatever happens between two of its steps.
#![allow(clippy::unwrap_used)]

mod common;

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{BLOCKS, BS, area, block, format, put};
use parking_lot::Mutex;
use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::policy::{Ordering, OtherPhase, Share};
use stetfs_journal::stet::{StetLog, StetOptions};
use stetfs_journal::{
    Cache, Canary, CommitPoint, Journal, JournalConfig, Lane, Recovery, RecoveryOptions, TxId,
    recover,
};
use stetfs_ondisk::jbd2::JournalSuperblock;

thread_local!(static LANE: Cell<u16> = const { Cell::new(0) });

fn on(lane: u16) {
    LANE.set(lane);
}

/// Done between looking at a transaction of another lane and doing what its phase asks for.
type Between = Box<dyn FnOnce(TxId) + Send>;

#[derive(Clone)]
struct Lanes {
    count: u16,
    between: Arc<Mutex<Option<Between>>>,
}

impl Ordering for Lanes {
    fn lanes(&self) -> u16 {
        self.count
    }
    fn lane(&self) -> Lane {
        Lane(LANE.get())
    }
    fn share(&self, _mine: TxId, other: TxId, phase: OtherPhase) -> Share {
        let between = self.between.lock().take();
        if let Some(between) = between {
            between(other);
        }
        match phase {
            OtherPhase::Running => Share::Chain,
            OtherPhase::Locked => Share::Wait,
            OtherPhase::Committing => Share::Edge,
        }
    }
}

struct Volume {
    device: Arc<MemDevice>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    lanes: Lanes,
    options: StetOptions,
}

fn superblock(device: &Arc<dyn BlockDevice>) -> JournalSuperblock {
    let bytes = area(device.clone()).read(std::iter::once(0)).unwrap();
    JournalSuperblock::decode(&bytes[0], BS as u32, common::LOG).unwrap()
}

impl Volume {
    fn new() -> Volume {
        Volume::with(3, 0)
    }

    fn with_records() -> Volume {
        Volume::with(2, 1)
    }

    fn with(count: u16, file_lanes: u16) -> Volume {
        let options = StetOptions {
            lanes: count,
            file_lanes,
            ..StetOptions::default()
        };
        let device = Arc::new(format(common::Kind::Stet));
        let as_device: Arc<dyn BlockDevice> = device.clone();
        let sb = superblock(&as_device);
        let log = StetLog::make(area(as_device.clone()), sb, &options, Canary::default());
        let lanes = Lanes {
            count,
            between: Arc::default(),
        };
        let mut scheme = log.unwrap().scheme(&options, true);
        scheme.ordering = Box::new(lanes.clone());
        let cache = Arc::new(Cache::new(
            as_device,
            CacheConfig {
                block_size: BS,
                capacity: 64 << 10,
                policy: PolicyKind::Clock,
            },
        ));
        let config = JournalConfig {
            commit_secs: 3600,
            ..JournalConfig::default()
        };
        Volume {
            journal: Journal::start(cache.clone(), scheme, config).unwrap(),
            device,
            cache,
            lanes,
            options,
        }
    }

    fn put(&self, lane: u16, nr: u64, value: u8) -> CommitPoint {
        on(lane);
        put(&self.cache, &self.journal, nr, value)
    }

    fn free(&self, lane: u16, nr: u64) -> CommitPoint {
        on(lane);
        let handle = self.journal.begin(1).unwrap();
        handle.revoke(nr, 1);
        handle.stop()
    }

    /// What a power cut now leaves, recovered.
    fn cut(&self) -> (Arc<dyn BlockDevice>, Recovery) {
        let device: Arc<dyn BlockDevice> = Arc::new(self.device.fork());
        let sb = superblock(&device);
        let log = StetLog::open(area(device.clone()), sb, Canary::default());
        let scheme = log.unwrap().scheme(&self.options, true);
        let how = RecoveryOptions::default();
        let found = recover(&scheme, &*device, BLOCKS, how, &mut |_, _| {}).unwrap();
        (device, found)
    }
}

/// A commit locks the other transaction after it was seen to run, and before it is chained: then it must not be chained any
/// more, for its group does not know of ours.
#[test]
fn a_group_that_commits_does_not_grow() {
    let v = Volume::new();
    let other = v.put(1, 400, 1);
    let (done, is_done) = mpsc::channel();
    let journal = v.journal.clone();
    *v.lanes.between.lock() = Some(Box::new(move |_| {
        std::thread::spawn(move || done.send(journal.commit(&other)).unwrap());
        // Time to lock the lane; its snapshot waits for the block, which we hold.
        std::thread::sleep(Duration::from_millis(100));
    }));
    on(0);
    let handle = v.journal.begin(1).unwrap();
    let block_400 = v.cache.get(400);
    handle.modify(&block_400).unwrap()[1] = 2;
    is_done
        .recv_timeout(Duration::from_secs(10))
        .unwrap()
        .unwrap();
    // Ours did not commit; the other was said to be durable.
    let (device, _) = v.cut();
    assert_eq!(block(&*device, 400)[..2], [1, 1]);
    let point = handle.stop();
    v.journal.commit(&point).unwrap();
    assert_eq!(block(&*v.cut().0, 400)[..2], [1, 2]);
}

/// What one lane changed and another frees belongs to neither's log, and the two stand or fall together.
#[test]
fn what_another_lane_frees_is_not_logged() {
    for first in [0, 1] {
        let v = Volume::new();
        let points = [v.put(0, 400, 1), v.free(1, 400)];
        v.journal.commit(&points[first]).unwrap();
        v.journal.commit_all().unwrap();
        let (device, found) = v.cut();
        assert_eq!(block(&*device, 400), [0; BS], "{:?}", found.report);
        // It can be used again, for what is not journaled.
        v.device.write(400 * BS as u64, &[9; BS]).unwrap();
        v.journal.checkpoint().unwrap();
        assert_eq!(block(&*v.device, 400), [9; BS]);
        assert_eq!(block(&*v.cut().0, 400), [9; BS]);
    }
}

/// The same where the change is committed already, and still in the log.
#[test]
fn what_another_lane_frees_is_revoked() {
    let v = Volume::new();
    let point = v.put(0, 400, 1);
    v.journal.commit(&point).unwrap();
    let point = v.free(1, 400);
    v.journal.commit(&point).unwrap();
    v.device.write(400 * BS as u64, &[9; BS]).unwrap();
    assert_eq!(block(&*v.cut().0, 400), [9; BS]);
}

/// A commit supersedes the records whose changes it holds, and no others.
#[test]
fn a_record_lives_until_the_lane_commits_that_its_changes_are_in() {
    let v = Volume::with_records();
    let point = v.put(1, 400, 1);
    let place = v.journal.reserve_record(3, 0).unwrap();
    v.journal.write_record(&place, b"one", &[]).unwrap();
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

/// A lane in which nothing happens keeps no record alive.
#[test]
fn idle_lanes_hold_nothing_back() {
    let v = Volume::with_records();
    v.put(1, 402, 1);
    v.journal.commit_all().unwrap();
    for i in 0..100 {
        let point = v.put(0, 400, i);
        let place = v.journal.reserve_record(1500, 0).unwrap();
        v.journal.write_record(&place, &[i; 1500], &[]).unwrap();
        v.journal.commit(&point).unwrap();
    }
}

/// Chains both ways, over three lanes: all or nothing, whichever is asked for.
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
