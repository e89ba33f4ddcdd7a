//! Models of a log in persistent memory: transactions as changes, and records that several threads
//! write at once (region.R1 to region.R3, changes.C1).
//!
//! The whole journal runs. Memory and disk lose their power at the same moment; any unfenced line
//! may survive, each up to any of its stores.

use std::sync::{Arc, Weak};

use stetfs_journal::{Canary, FileState, Ino, JournalError, Result, Submit};

use super::common::block;
use super::explore::{fails_with, holds, with};
use super::records::{File, judge};
use super::volume::{Volume, sync, together};

/// The block with a word of each thread, and the first of the blocks of single threads.
const SHARED: u64 = 400;
const OWN: u64 = 410;
const WORD: usize = 8;

/// Raises two counters in one handle: a block of this thread, and its word in the shared block.
fn change(v: &Volume, own: u64) {
    let handle = v.journal.begin(2).unwrap();
    let version = v.raise(&handle, OWN + own);
    {
        let block = v.cache.read(SHARED).unwrap();
        handle.modify(&block).unwrap()[own as usize * WORD] += 1;
    }
    sync(&v.journal, handle.stop(), Vec::new(), true).unwrap();
    v.acks.give(OWN + own, version);
}

/// Two threads commit while checkpoints run: each transaction is whole or absent.
fn transactions(canary: Canary) {
    let v = Volume::in_memory(canary);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| (0..2).for_each(|_| change(v, 0)),
        |v| change(v, 1),
        |v| (0..2).for_each(|_| v.journal.checkpoint().unwrap()),
    ];
    together(&v, works);
    for (device, _, promise) in v.cuts() {
        let shared = block(&*device, SHARED);
        for own in 0..2 {
            let is = block(&*device, OWN + own)[0];
            let least = promise.get(&(OWN + own)).copied().unwrap_or(0);
            assert!(is >= least, "lost: thread {own} has {is}, not {least}");
            let beside = shared[own as usize * WORD];
            assert!(is == beside, "torn: thread {own} has {is} and {beside}");
        }
    }
}

/// Two files of one volume.
struct Files([File; 2]);

impl FileState for Files {
    fn hand_out(&self, inos: &[Ino], send: &mut Submit<'_>) -> Result<()> {
        self.0.iter().try_for_each(|file| file.hand_out(inos, send))
    }

    fn aborted(&self, why: &JournalError) {
        panic!("the journal stops: {why}");
    }
}

/// Two threads sync a file each by records, beside a commit and a checkpoint.
fn records(canary: Canary) {
    let v = Volume::in_memory(canary);
    let files = Arc::new(Files([0, 1].map(|n| File::part(v.clone(), n))));
    let state: Weak<Files> = Arc::downgrade(&files);
    v.journal.attach(state);
    files.0.iter().for_each(File::begin);
    v.disk.begin();
    let works: [fn(&Files); 4] = [
        |f| {
            f.0[0].write(true);
            f.0[0].sync();
            f.0[0].write(false);
            f.0[0].sync();
        },
        |f| {
            f.0[1].write(true);
            f.0[1].sync();
        },
        |f| f.0[0].other(0, true),
        |f| f.0[0].v.journal.checkpoint().unwrap(),
    ];
    together(&files, works);
    judge(&v);
}

#[test]
fn transactions_in_memory_are_whole_and_stand() {
    holds("region-transactions", || transactions(Canary::default()));
}

#[test]
fn records_in_memory_stand_beside_each_other() {
    holds("region-records", || records(Canary::default()));
}

/// Without region.R1: the seal is stored before the record.
#[test]
fn a_seal_that_comes_too_early_is_found() {
    fn early() -> Canary {
        with(|canary| canary.region_seal_early = true)
    }
    let says = ["lost", "torn"];
    fails_with("seal-early-transactions", || transactions(early()), &says);
    fails_with("seal-early-records", || records(early()), &says);
}

/// Without region.R1: a fence is left out.
#[test]
fn a_fence_that_is_left_out_is_found() {
    fn unfenced() -> Canary {
        with(|canary| canary.region_unfenced = true)
    }
    let says = ["lost", "torn"];
    fails_with("unfenced-transactions", || transactions(unfenced()), &says);
    fails_with("unfenced-records", || records(unfenced()), &says);
}

/// Without changes.C1: older changes of a block are not logged again.
#[test]
fn changes_that_build_on_each_other_are_found() {
    let model = || transactions(with(|canary| canary.changes_of_tx = true));
    fails_with("changes-of-tx", model, &["lost", "torn"]);
}

/// Without checkpoint.K2: the tail moves before the images at home are durable.
#[test]
fn a_tail_that_moves_too_early_is_found() {
    let model = || transactions(with(|canary| canary.home_volatile = true));
    fails_with("region-home-volatile", model, &["lost", "torn"]);
}
