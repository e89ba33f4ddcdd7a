//! The tail of the log, and slow writes of images to their home locations.
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::common::frame::use_lane;
use crate::common::{ALL, BS, Kind, block, crashed, put, start};
use stetfs_block::{BlockDevice, MemDevice, Read, Result, Stats, Write};

/// A device that holds back writes to one block until they are released.
struct Holding {
    inner: MemDevice,
    block: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    hold: bool,
    held: u32,
}

impl Holding {
    fn new(inner: MemDevice, block: u64) -> Holding {
        Holding {
            inner,
            block,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn hold(&self, hold: bool) {
        self.state.lock().unwrap().hold = hold;
        self.changed.notify_all();
    }

    fn wait_until_held(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, Duration::from_secs(20), |s| s.held == 0)
            .unwrap();
        assert!(state.held > 0, "the home write never came");
    }
}

impl BlockDevice for Holding {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }
    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let at = self.block * BS as u64;
        let touches = |w: &Write<'_>| w.offset <= at && at < w.offset + w.len();
        if writes.iter().any(touches) {
            let mut state = self.state.lock().unwrap();
            if state.hold {
                state.held += 1;
                self.changed.notify_all();
                drop(self.changed.wait_while(state, |s| s.hold).unwrap());
            }
        }
        self.inner.write_batch(writes)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// A transaction frees a block that is being written home. It is durable, and waits for the write
/// before it is valid. After the write the checkpoint moves the tail, but not past the transaction
/// that waited: its own images are not home (checkpoint.K2).
#[test]
fn the_tail_stays_before_a_transaction_that_waited_for_home_writes() {
    for kind in ALL {
        let device = Arc::new(Holding::new(crate::common::format(kind), 300));
        let (cache, journal) = start(kind, device.clone());
        let journal = &journal;
        journal.commit(&put(&cache, journal, 300, 1)).unwrap();
        device.hold(true);
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(move || journal.checkpoint());
            device.wait_until_held();
            let handle = journal.begin(2).unwrap();
            handle.revoke(300, 1).unwrap();
            handle.create(&cache.get(400)).unwrap().fill(4);
            let point = handle.stop();
            let waits = journal.hold("waits-for-home-writes");
            let commit = scope.spawn(move || journal.commit(&point));
            let until = Instant::now() + Duration::from_secs(20);
            while block(&crashed(kind, &device.inner), 400) != [4; BS] {
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
            device.hold(false);
            checkpoint.join().unwrap().unwrap();
            commit.join().unwrap().unwrap();
        });
        assert_eq!(
            block(&crashed(kind, &device.inner), 400),
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
    let device = Arc::new(Holding::new(crate::common::format(Kind::Frame), 300));
    let (cache, journal) = start(Kind::Frame, device.clone());
    let journal = &journal;
    use_lane(1);
    journal.commit(&put(&cache, journal, 300, 1)).unwrap();
    device.hold(true);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(move || journal.checkpoint());
        device.wait_until_held();
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
        device.hold(false);
        checkpoint.join().unwrap().unwrap();
        commit.join().unwrap().unwrap();
        assert!(is_valid, "its image is to go home, and it does not count");
        assert!(
            !too_early,
            "it counts before the home write of what it frees"
        );
    });
}
