//! Models of the queue's leader, the shared flush, the answers, and a flush that fails (queue.Q1,
//! queue.Q2, block.F1, block.F2).
//!
//! The whole journal runs, on the StetFS log. Four threads sync. They commit, or only flush if
//! there is nothing to commit; they may wait and lead, or the journal's thread calls them back; or
//! they share a flush.

use std::sync::Arc;

use stetfs_block::{BlockDevice, MemDevice};
use stetfs_cache::{CacheConfig, PolicyKind};
use stetfs_journal::{Cache, Canary, CommitPoint, Journal, Result};
use stetfs_sync::plain::shuttle::rand::{Rng, thread_rng};
use stetfs_sync::plain::thread;

use super::acks::Acks;
use super::common::{BS, Kind, block, crashed, format, start_with};
use super::disk::{Cut, Disk};
use super::explore::{fails_with, holds, with};
use super::volume::{config, sync, together};

/// The number of flushes of a run, roughly.
const FLUSHES: u64 = 5;

struct Volume {
    disk: Arc<Disk>,
    device: Arc<dyn BlockDevice>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    acks: Acks,
}

impl Volume {
    fn new(canary: Canary) -> Arc<Volume> {
        let acks = Acks::default();
        let disk = Arc::new(Disk::new(format(Kind::Stet), None, acks.clone()));
        let device = canary.fail_stop(Arc::<Disk>::clone(&disk));
        let (cache, journal) = start_with(Kind::Stet, Arc::clone(&device), config(canary));
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
        // After a stop this fails.
        if let Ok(point) = self.change(nr) {
            self.sync(point, nr, here);
        }
    }

    /// Writes a block and has it made durable; there is nothing to commit.
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

    /// Checks that all promised content is there after each cut.
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

fn answers(canary: Canary) {
    let works: [fn(&Volume); 4] = [
        |v| v.commits(300, true),
        |v| v.commits(301, false),
        |v| v.flushes(600),
        |v| v.flushes(601),
    ];
    run(&Volume::new(canary), works);
}

/// The same, and one of the flushes fails.
fn failing(canary: Canary) {
    let v = Volume::new(canary);
    v.disk.fail(thread_rng().gen_range(0..FLUSHES));
    let works: [fn(&Volume); 4] = [
        |v| v.commits(300, true),
        |v| v.syncs(602, true),
        |v| v.syncs(603, false),
        |v| v.flushes(600),
    ];
    run(&v, works);
}

/// Callers that may wait take turns with each other and with the journal's thread. The device takes
/// no steps, and there is no log, so only the queues are modelled.
fn turns(canary: Canary) {
    let cache = CacheConfig {
        block_size: BS,
        capacity: 64 << 10,
        policy: PolicyKind::Clock,
    };
    let cache = Arc::new(Cache::new(Arc::new(MemDevice::new(1 << 20)), cache));
    let journal = Journal::without_log(cache, config(canary)).expect("a journal without a log");
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
    holds("answers", || answers(Canary::default()));
}

#[test]
fn nobody_is_told_of_success_beside_a_flush_that_fails() {
    holds("failing-flush", || failing(Canary::default()));
}

#[test]
fn every_caller_has_its_turn() {
    holds("turns", || turns(Canary::default()));
}

/// Without block.F1.
#[test]
fn a_failure_that_is_forgiven_is_found() {
    let model = || failing(with(|canary| canary.forgive_flush = true));
    fails_with("forgive-flush", model, &["lost", "Corrupt"]);
}

/// Without block.F2.
#[test]
fn a_flush_that_does_not_wait_for_those_beside_it_is_found() {
    let model = || failing(with(|canary| canary.flush_alone = true));
    fails_with("flush-alone", model, &["lost"]);
}

#[test]
fn a_share_in_a_flush_that_began_before_is_found() {
    let model = || answers(with(|canary| canary.join_running_flush = true));
    fails_with("join-running-flush", model, &["lost"]);
}

/// Without queue.Q1.
#[test]
fn a_lead_that_ends_without_a_next_is_found() {
    let model = || turns(with(|canary| canary.no_next_leader = true));
    fails_with("no-next-leader", model, &["deadlock"]);
}

/// Without queue.Q2.
#[test]
fn an_answer_beside_one_that_goes_to_sleep_is_found() {
    let model = || turns(with(|canary| canary.signal_unlocked = true));
    fails_with("signal-unlocked", model, &["deadlock"]);
}
