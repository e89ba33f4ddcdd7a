//! Transactions of several lanes that share blocks: join, chain, lock, snapshot, capture, revoke
//! (tx.T1 to tx.T5); and what goes home of them, beside records: the list, the tails, the horizon
//! (checkpoint.K1 to checkpoint.K3).
//!
//! The whole journal runs. A handle gives each block that it changes its next version.

use stetfs_block::BlockDevice;
use stetfs_journal::Canary;

use super::common::{BS, block};
use super::explore::{fails_with, fails_without, holds, with};
use super::records::File;
use super::volume::{Volume, on, sync, together};

/// All lanes change it.
const SHARED: u64 = 400;
/// One of each lane.
const OWN: u64 = 410;
/// What a block holds that is used again.
const AGAIN: u8 = 99;

/// Changes these blocks in one handle and has it committed.
fn change(v: &Volume, lane: u16, blocks: &[u64]) {
    on(lane);
    let handle = v.journal.begin(blocks.len() as u32).unwrap();
    let versions: Vec<_> = blocks
        .iter()
        .map(|nr| (*nr, v.raise(&handle, *nr)))
        .collect();
    sync(&v.journal, handle.stop(), Vec::new(), true).unwrap();
    for (nr, version) in versions {
        v.acks.give(nr, version);
    }
}

/// What was promised is there, and of each handle all or nothing, where `counted` says that each
/// changed the shared block and one of its own.
fn judge(v: &Volume, counted: bool) {
    for (device, _, promise) in v.cuts() {
        let is = |nr| block(&*device, nr)[0];
        for (nr, version) in promise {
            let is = is(nr);
            assert!(is >= version, "lost: block {nr} is {is}, not {version}");
        }
        let own = [is(OWN), is(OWN + 1)];
        assert!(
            !counted || own.iter().sum::<u8>() == is(SHARED),
            "torn: {own:?} changes, but {} of the shared block",
            is(SHARED)
        );
    }
}

/// Two lanes change one block.
fn shared() {
    let v = Volume::new(2, 0, Canary::default());
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| (0..2).for_each(|_| change(v, 0, &[SHARED, OWN])),
        |v| change(v, 1, &[OWN + 1, SHARED]),
        |v| change(v, 1, &[SHARED, OWN + 1]),
    ];
    together(&v, works);
    judge(&v, true);
}

/// One lane changes a block, another changes and frees it and uses it again, for what is not
/// journaled.
fn freed(canary: Canary) {
    let v = Volume::new(2, 0, canary);
    on(1);
    let handle = v.journal.begin(1).unwrap();
    v.raise(&handle, SHARED);
    drop(handle);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| v.journal.commit_all().unwrap(),
        |v| {
            on(0);
            let handle = v.journal.begin(1).unwrap();
            v.raise(&handle, SHARED);
            drop(handle);
            let handle = v.journal.begin(1).unwrap();
            handle.revoke(SHARED, 1).unwrap();
            sync(&v.journal, handle.stop(), Vec::new(), true).unwrap();
            v.disk.write(SHARED * BS as u64, &[AGAIN; BS]).unwrap();
            v.journal.flush_shared().unwrap();
            v.acks.give(SHARED, AGAIN);
        },
        |v| v.journal.checkpoint().unwrap(),
    ];
    together(&v, works);
    judge(&v, false);
}

/// Three lanes commit, and what they commit goes home.
fn home(canary: Canary) {
    let v = Volume::new(3, 0, canary);
    change(&v, 2, &[SHARED]);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| change(v, 0, &[SHARED, OWN]),
        |v| change(v, 1, &[SHARED]),
        |v| (0..2).for_each(|_| v.journal.checkpoint().unwrap()),
    ];
    together(&v, works);
    judge(&v, false);
}

/// Three lanes have committed, and two threads move their tails at once.
fn tails() {
    let v = Volume::new(3, 0, Canary::default());
    change(&v, 2, &[SHARED]);
    change(&v, 0, &[SHARED]);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| change(v, 1, &[SHARED]),
        |v| v.journal.checkpoint().unwrap(),
        |v| v.journal.checkpoint().unwrap(),
    ];
    together(&v, works);
    judge(&v, false);
}

/// A file is synced by records and by commits; what the transactions hold goes home.
fn records() {
    let file = File::new(Canary::default());
    let works: [fn(&File); 3] = [
        |f| {
            f.write(true);
            f.sync();
            f.write(false);
            f.by_commit(true);
        },
        |f| f.other(1, true),
        |f| (0..2).for_each(|_| f.v.journal.checkpoint().unwrap()),
    ];
    together(&file, works);
    file.judge();
}

#[test]
fn lanes_that_share_a_block_lose_nothing() {
    holds("lanes", shared);
}

#[test]
fn a_block_that_another_lane_frees_can_be_used_again() {
    holds("freed", || freed(Canary::default()));
}

#[test]
fn what_goes_home_is_not_taken_back() {
    holds("home", || home(Canary::default()));
}

#[test]
fn what_goes_home_beside_records_is_not_taken_back() {
    holds("records-home", records);
}

/// tx.T4 is out: who changes a block of another lane's transaction is not chained to it.
#[test]
fn a_change_that_is_not_chained_is_found() {
    fails_without("tx.chain", shared, &["torn", "lost"]);
}

/// tx.T4 is out: the image is not taken for the snapshot that has not come to it.
#[test]
fn an_image_that_is_not_captured_is_found() {
    fails_without("tx.capture", shared, &["torn", "lost"]);
}

/// tx.T4 is out: the group ends its changes though something is chained to it that is not in it.
#[test]
fn a_group_that_ends_too_early_is_found() {
    let says = ["torn", "lost", "commit.A1"];
    fails_without("tx.group", shared, &says);
}

/// tx.T5 is out.
#[test]
fn an_image_that_is_known_too_late_is_found() {
    let model = || freed(with(|canary| canary.index_late = true));
    fails_with("index-late", model, &["lost"]);
}

/// A transaction counts while a block that it freed is on its way home.
#[test]
fn a_home_write_that_comes_too_late_is_found() {
    let model = || freed(Canary::default());
    fails_without("checkpoint.in-flight", model, &["lost"]);
}

/// checkpoint.K3 is out.
#[test]
fn an_older_image_that_is_left_alone_is_found() {
    let model = || home(with(|canary| canary.reap_alone = true));
    fails_with("reap-alone", model, &["lost"]);
}

/// checkpoint.K2 is out: the tail moves before what went home is durable.
#[test]
fn a_tail_that_moves_too_early_is_found() {
    let model = || home(with(|canary| canary.home_volatile = true));
    fails_with("home-volatile", model, &["lost"]);
}

/// checkpoint.K4 is out: what is reaped is not revoked, though the tail is not durable.
#[test]
fn an_image_that_is_forgotten_too_early_is_found() {
    let model = || freed(Canary::default());
    fails_without("checkpoint.index", model, &["lost"]);
}

/// checkpoint.K5 is out: another tail takes some of those with it that are to move together.
#[test]
fn tails_that_do_not_move_together_are_found() {
    fails_without("checkpoint.together", tails, &["lost"]);
}

/// The tails move without the horizon.
#[test]
fn a_horizon_that_stays_behind_is_found() {
    fails_without("checkpoint.horizon", records, &["lost"]);
}
