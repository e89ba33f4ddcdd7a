//! The queue's lead, the shared flush, who is answered what, and a flush that fails (queue.Q1,
//! queue.Q2, block.F1, block.F2).
//!
//! The whole journal runs, on the StetFS log. Four threads sync: by commits, or by flushes alone
//! where there is nothing to commit, as threads that may wait and lead or as ones that the
//! journal's thread calls back; and by a flush that they share.

use std::sync::Arc;

use stetfs_block::{BlockDevice, FailStop, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::{Cache, CommitPoint, Journal, Result};
use stetfs_sync::plain::shuttle::rand::{Rng, thread_rng};
use stetfs_sync::plain::thread;

use super::acks::Acks;
use super::common::{BS, Kind, block, crashed, format, start};
use super::disk::{Cut, Disk};
use super::explore::{fails_with, fails_without, holds};
use super::volume::{sync, together};

/// Flushes of a run, more or less.
const FLUSHES: u64 = 5;

struct Volume {
    disk: Arc<Disk>,
    device: Arc<dyn BlockDevice>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    acks: Acks,
}

impl Volume {
    fn new(stops: bool) -> Arc<Volume> {
        let acks = Acks::default();
        let disk = Arc::new(Disk::new(format(Kind::Stet), None, acks.clone()));
        let device: Arc<dyn BlockDevice> = match stops {
            true => Arc::new(FailStop::new(Arc::clone(&disk))),
            false => Arc::new(FailStop::forgiving(Arc::clone(&disk))),
        };
        let (cache, journal) = start(Kind::Stet, Arc::clone(&device));
        disk.begin();
        Arc::new(Volume {
            disk,
            device,
            cache,
            journal,
            acks,
        })
    }

    fn change(&self, nr: u64) -> Result<CommitPoint> {
        let handle = self.journal.begin(1)?;
        let block = self.cache.get(nr);
        handle.create(&block)?.fill(1);
        Ok(handle.stop())
    }

    /// Changes a block and has it committed.
    fn commits(&self, nr: u64, here: bool) {
        // Not after a stop.
        if let Ok(point) = self.change(nr) {
            self.sync(point, nr, here);
        }
    }

    /// Writes a block and has it made durable: nothing is to be committed.
    fn syncs(&self, nr: u64, here: bool) {
        if self.device.write(nr * BS as u64, &[1; BS]).is_ok() {
            self.sync(CommitPoint::none(), nr, here);
        }
    }

    fn sync(&self, point: CommitPoint, nr: u64, here: bool) {
        if sync(&self.journal, point, Vec::new(), here).is_ok() {
            self.acks.give(nr, 1);
        }
    }

    /// Writes a block and shares a flush.
    fn flushes(&self, nr: u64) {
        let written = self.device.write(nr * BS as u64, &[1; BS]);
        if written.is_ok() && self.journal.flush_shared().is_ok() {
            self.acks.give(nr, 1);
        }
    }

    /// What was promised is there, whenever the power went.
    fn judge(&self) {
        for Cut {
            device: image,
            promise,
            ..
        } in self.disk.cuts()
        {
            let device = crashed(Kind::Stet, &image);
            for nr in promise.keys() {
                assert!(block(&device, *nr)[0] == 1, "lost: block {nr}");
            }
        }
    }
}

fn run<const N: usize>(v: &Arc<Volume>, works: [fn(&Volume); N]) {
    together(v, works);
    v.judge();
}

fn sound() {
    let works: [fn(&Volume); 4] = [
        |v| v.commits(300, true),
        |v| v.commits(301, false),
        |v| v.flushes(600),
        |v| v.flushes(601),
    ];
    run(&Volume::new(true), works);
}

fn with_failure(stops: bool) {
    let v = Volume::new(stops);
    v.disk.fail(thread_rng().gen_range(0..FLUSHES));
    let works: [fn(&Volume); 4] = [
        |v| v.commits(300, true),
        |v| v.syncs(602, true),
        |v| v.syncs(603, false),
        |v| v.flushes(600),
    ];
    run(&v, works);
}

fn failing() {
    with_failure(true);
}

fn forgiving() {
    with_failure(false);
}

/// Callers that may wait take turns, with each other and with the journal's thread. The device
/// takes no steps, and there is no log: what is left is the queue.
fn turns() {
    let config = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(Arc::new(MemDevice::new(1 << 20)), config));
    let journal = Journal::read_only(cache).expect("a journal without a log");
    let threads = [true, true, true, true, false].map(|here| {
        let journal = Arc::clone(&journal);
        thread::spawn(move || {
            let synced = sync(&journal, CommitPoint::none(), Vec::new(), here);
            synced.expect("a flush that succeeds");
        })
    });
    for thread in threads {
        thread.join().expect("the thread ends");
    }
}

#[test]
fn who_syncs_is_answered_when_it_is_durable() {
    holds("answers", sound);
}

#[test]
fn nobody_is_told_of_success_beside_a_flush_that_fails() {
    holds("failing-flush", failing);
}

#[test]
fn every_caller_has_its_turn() {
    holds("turns", turns);
}

/// block.F1 is out.
#[test]
fn a_failure_that_is_forgiven_is_found() {
    fails_with("forgive-flush", forgiving, &["lost", "Corrupt"]);
}

/// block.F2 is out.
#[test]
fn a_flush_that_does_not_wait_for_those_beside_it_is_found() {
    fails_without("fail-stop.beside", failing, &["lost"]);
}

#[test]
fn a_share_in_a_flush_that_began_before_is_found() {
    fails_without("flush.next", sound, &["lost"]);
}

/// queue.Q1 is out.
#[test]
fn a_lead_that_ends_without_a_next_is_found() {
    fails_without("queue.hand-on", turns, &["deadlock"]);
}

/// queue.Q2 is out.
#[test]
fn an_answer_beside_one_that_goes_to_sleep_is_found() {
    fails_without("queue.tell", turns, &["deadlock"]);
}
