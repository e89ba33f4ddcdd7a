//! A bounded run of `stetfs crash stress`: acknowledged changes survive kills and cuts, and the
//! faults of a forgetful journal are found. `STETFS_STRESS_SECONDS` sets the time for each journal.

use std::process::Command;
use std::time::{Duration, Instant};

use stetfs_crash::stress::{End, Settings, SyncBy, Tally, child, round};
use stetfs_testkit::cmd::tied;

/// The environment variable with the task of the process to be killed.
const TASK: &str = "STETFS_STRESS_TASK";

/// Not a test by itself: the process that the other tests kill.
#[test]
#[ignore = "run by the tests that kill it"]
fn works_until_killed() {
    child(&std::env::var(TASK).unwrap()).unwrap();
}

fn reexec(task: &str) -> anyhow::Result<Command> {
    let mut command = tied(std::env::current_exe()?, libc::SIGKILL);
    command
        .args([
            "--exact",
            "stress::works_until_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(TASK, task);
    Ok(command)
}

fn small(end: End, journals: &[&str]) -> Settings {
    Settings {
        ends: vec![end],
        journals: journals.iter().map(ToString::to_string).collect(),
        journals_mib: vec![4],
        writers: vec![1, 4],
        files: 400,
        millis: 150,
        ..Settings::default()
    }
}

/// Runs rounds for some seconds, at least one with each journal; none may lose anything.
fn holds(end: End, journals: &[&str]) {
    let seconds = std::env::var("STETFS_STRESS_SECONDS").map_or(1.0, |s| s.parse().unwrap());
    let settings = small(end, journals);
    let until = Instant::now() + Duration::from_secs_f64(seconds * journals.len() as f64);
    let mut tally = Tally::default();
    let mut n = 0;
    while n < journals.len() as u64 || Instant::now() < until {
        let setting = settings.round(1, n);
        let told = round(&setting, n == 0, None, &reexec).unwrap();
        let said =
            |b: &stetfs_crash::stress::Broken| format!("{}: {}\n  {}", b.moment, b.detail, b.round);
        let told_of: Vec<String> = told.broken.iter().map(said).collect();
        assert!(told.broken.is_empty(), "stetfs crash stress: {told_of:#?}");
        tally.add(&told);
        n += 1;
    }
    println!("{end:?}, {journals:?}: {tally:?}");
    assert!(
        tally.acked > 0 && tally.hit > 0,
        "nothing was tried: {tally:?}"
    );
}

#[test]
fn what_was_acknowledged_survives_kills() {
    holds(
        End::Kill,
        &[
            "ordered",
            "writeback",
            "data",
            "ldj",
            "ijournal",
            "writeback,sync=file",
            "data,sync=file",
            "stet",
            "zjournal,lanes=2",
            "zjournal,data=journal,lanes=2,commits=apart",
        ],
    );
}

#[test]
fn what_was_acknowledged_survives_failing_flushes() {
    holds(
        End::Flush,
        &["ordered", "writeback", "data", "ldj", "ijournal", "stet"],
    );
}

#[test]
fn what_was_acknowledged_survives_failing_writes() {
    holds(End::Write, &["ordered", "data", "ijournal", "stet"]);
}

#[test]
fn what_was_acknowledged_survives_cuts() {
    holds(End::Cut, &["ordered", "data", "ldj", "stet"]);
}

/// The stress finds faults that lose acknowledged changes, which proves that it looks.
#[test]
fn faults_are_found_out() {
    for (end, sync, journal) in [
        (End::Cut, SyncBy::Fsync, "ordered,canary=no-barrier"),
        (End::Kill, SyncBy::Fsync, "ijournal,canary=leave-recorded"),
        // These syncs flush by themselves, beside the flushes of commits.
        (
            End::Flush,
            SyncBy::Fdatasync,
            "ordered,canary=forgive-flush",
        ),
    ] {
        let settings = Settings {
            failing: vec![1],
            syncs: vec![sync],
            ..small(end, &[journal])
        };
        let lost = (0..200).position(|n| {
            let told = round(&settings.round(1, n), false, None, &reexec).unwrap();
            !told.broken.is_empty()
        });
        println!("{journal}: found in round {lost:?}");
        assert!(lost.is_some(), "{journal}: nothing is lost");
    }
}
