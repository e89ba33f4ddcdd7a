//! Models of transactions of several lanes that share blocks: join, chain, lock, snapshot, capture,
//! revoke (tx.T1 to tx.T5). Others are of what is written home, beside records: the list, the
//! tails, the horizon (checkpoint.K1 to checkpoint.K3).
//!
//! The whole journal runs. A handle gives each block that it changes its next version.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stetfs_block::BlockDevice;
use stetfs_journal::Canary;

use super::common::{BS, block};
use super::explore::{fails_with, holds, with};
use super::records::File;
use super::volume::{Volume, on, sync, together};

/// A block that all lanes change.
const SHARED: u64 = 400;
/// The first of the blocks that only one lane changes.
const OWN: u64 = 410;
/// The content of a block after its reuse.
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

/// Checks that all promised content is there. If `counted`, each handle changed the shared block
/// and one of its own; then all or none of each handle's changes must be there.
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
fn shared(canary: Canary) {
    let v = Volume::new(2, 0, canary);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| (0..2).for_each(|_| change(v, 0, &[SHARED, OWN])),
        |v| change(v, 1, &[OWN + 1, SHARED]),
        |v| change(v, 1, &[SHARED, OWN + 1]),
    ];
    together(&v, works);
    judge(&v, true);
}

/// One lane changes a block. Another lane changes it, frees it, and reuses it for content that is
/// not journaled.
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

/// Three lanes commit, and checkpoints write their images home.
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

/// Three lanes commit, and two threads move their tails at the same time.
fn tails(canary: Canary) {
    let v = Volume::new(3, 0, canary);
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

/// A lane commits a block that it alone changes, and one that it shares with a lane whose commits
/// another thread leads. Only the callback of a commit tells of the first.
fn apart(canary: Canary) {
    let v = Volume::new(2, 0, canary);
    change(&v, 0, &[OWN]);
    change(&v, 1, &[OWN + 1]);
    v.disk.begin();
    let works: [fn(&Volume); 3] = [
        |v| change(v, 0, &[SHARED, OWN]),
        |v| settles(v, &[SHARED, OWN + 1]),
        |v| settles(v, &[OWN + 1]),
    ];
    together(&v, works);
    judge(&v, false);
}

/// As [`change`] in lane 1, with a callback that has run when the answer comes.
fn settles(v: &Volume, blocks: &[u64]) {
    on(1);
    let handle = v.journal.begin(blocks.len() as u32).unwrap();
    let versions: Vec<_> = blocks
        .iter()
        .map(|nr| (*nr, v.raise(&handle, *nr)))
        .collect();
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    handle.after_commit(Box::new(move || runs.store(true, Ordering::SeqCst)));
    sync(&v.journal, handle.stop(), Vec::new(), true).unwrap();
    assert!(ran.load(Ordering::SeqCst), "unsettled: no callback has run");
    for (nr, version) in versions {
        v.acks.give(nr, version);
    }
}

/// A file is synced by records and by commits, while checkpoints run.
fn records(canary: Canary) {
    let file = File::new(canary);
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
    holds("lanes", || shared(Canary::default()));
}

#[test]
fn commits_of_two_leaders_stand_beside_each_other() {
    holds("apart", || apart(Canary::default()));
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
    holds("records-home", || records(Canary::default()));
}

/// Without tx.T4: a change of a block of another lane's transaction does not chain the two.
#[test]
fn a_change_that_is_not_chained_is_found() {
    let model = || shared(with(|canary| canary.one_directional_edge = true));
    fails_with("one-directional-edge", model, &["torn", "lost"]);
}

/// Without tx.T4: no image is taken for a snapshot that has not reached the block.
#[test]
fn an_image_that_is_not_captured_is_found() {
    let model = || shared(with(|canary| canary.skip_capture = true));
    fails_with("skip-capture", model, &["torn", "lost"]);
}

/// Without tx.T4: a group ends its changes although a transaction outside it is chained to it.
#[test]
fn a_group_that_ends_too_early_is_found() {
    let model = || shared(with(|canary| canary.group_early = true));
    fails_with("group-early", model, &["torn", "lost", "commit.A1"]);
}

/// Without commit.A2: a transaction is written although the one before it in its lane is not
/// durable.
#[test]
fn a_transaction_that_is_written_out_of_turn_is_found() {
    let model = || apart(with(|canary| canary.out_of_turn = true));
    fails_with("out-of-turn", model, &["lost", "internal error"]);
}

/// Without commit.A1: a sync is answered before the callbacks of its transactions have run.
#[test]
fn an_answer_before_the_callbacks_is_found() {
    let model = || apart(with(|canary| canary.answer_unsettled = true));
    fails_with("answer-unsettled", model, &["unsettled"]);
}

/// Without tx.T5.
#[test]
fn an_image_that_is_known_too_late_is_found() {
    let model = || freed(with(|canary| canary.index_late = true));
    fails_with("index-late", model, &["lost"]);
}

/// A transaction counts while a block that it freed is still being written home.
#[test]
fn a_home_write_that_comes_too_late_is_found() {
    let model = || freed(with(|canary| canary.free_in_flight = true));
    fails_with("free-in-flight", model, &["lost"]);
}

/// Without checkpoint.K3.
#[test]
fn an_older_image_that_is_left_alone_is_found() {
    let model = || home(with(|canary| canary.reap_alone = true));
    fails_with("reap-alone", model, &["lost"]);
}

/// Without checkpoint.K2: the tail moves before the images at home are durable.
#[test]
fn a_tail_that_moves_too_early_is_found() {
    let model = || home(with(|canary| canary.home_volatile = true));
    fails_with("home-volatile", model, &["lost"]);
}

/// Without checkpoint.K4: a reaped image is not revoked although the tail is not durable.
#[test]
fn an_image_that_is_forgotten_too_early_is_found() {
    let model = || freed(with(|canary| canary.forget_reaped = true));
    fails_with("forget-reaped", model, &["lost"]);
}

/// Without checkpoint.K5: another write of a tail makes some tails durable that must move together.
#[test]
fn tails_that_do_not_move_together_are_found() {
    let model = || tails(with(|canary| canary.tails_apart = true));
    fails_with("tails-apart", model, &["lost"]);
}

/// The tails move, but not the horizon.
#[test]
fn a_horizon_that_stays_behind_is_found() {
    let model = || records(with(|canary| canary.leave_horizon = true));
    fails_with("leave-horizon", model, &["lost"]);
}
