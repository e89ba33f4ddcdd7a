//! Tests of power cuts under SQLite, by `stetfs crash cut`; its commands are this program again,
//! with the ignored tests below.
//!
//! `STETFS_SQLITE_STATES` sets the number of crashes for each journal (default 24).

#[path = "../../cli/tests/sqlite/fake.rs"]
mod fake;
#[allow(dead_code, reason = "the client of crates/cli uses the rest")]
#[path = "../../cli/tests/sqlite/ledger.rs"]
mod ledger;

use std::path::{Path, PathBuf};

use serde_json::Value;
use stetfs_testkit::{Image, Mkfs};

use crate::common::daemon::answer;
use ledger::{Ledger, open};

/// The variable with the file system's claim about atomic writes, for the working process.
const SAYS: &str = "STETFS_SQLITE_SAYS";
/// The variable with the number of transactions.
const TRANSACTIONS: &str = "STETFS_SQLITE_EACH";
/// The variable with the journal mode.
const MODE: &str = "STETFS_SQLITE_MODE";

fn database() -> PathBuf {
    Path::new(&std::env::var("STETFS_DIR").unwrap()).join("db")
}

/// Not a test by itself.
#[test]
#[ignore = "run by stetfs crash cut"]
fn the_database_is_made() {
    Ledger::SMALL.make(&database());
}

/// Not a test by itself: prints each transaction that is acknowledged. Measurements use it, too
/// (docs/atomic.md).
#[test]
#[ignore = "run by stetfs crash cut"]
fn transactions_are_told() {
    if std::env::var(SAYS).is_ok_and(|says| says == "yes") {
        fake::atomic_writes();
    }
    let mode = std::env::var(MODE).unwrap_or_else(|_| "DELETE".into());
    let mut db = open(&database(), &mode).unwrap();
    for n in 1..=crate::common::number(TRANSACTIONS, 40) {
        Ledger::SMALL.carry_out(&mut db, n).unwrap();
        println!("\n{n}");
    }
    let other = database().with_file_name("db-journal");
    assert!(!other.exists(), "it wrote a journal file");
}

/// Not a test by itself: the judge of a crash state.
#[test]
#[ignore = "run by stetfs crash cut"]
fn what_a_crash_left_is_judged() {
    let told = std::fs::read_to_string(std::env::var("STETFS_TOLD").unwrap()).unwrap();
    let told = told.lines().rev().find_map(|line| line.parse().ok());
    let db = open(&database(), "DELETE").unwrap();
    let last = Ledger::SMALL.check(&db).unwrap();
    let told: u64 = told.unwrap_or(0);
    assert!(last >= told, "{told} was acknowledged, {last} stands");
}

/// Records SQLite at work, and has crash states judged. Returns the exit code, and the report.
fn cut(options: &str, says: &str, seed: u64) -> (i32, Value) {
    let image = Image::make(32 << 20, &Mkfs::blocks(4096).journal_mib(8)).unwrap();
    let this = std::env::current_exe().unwrap();
    let again = |test: &str| {
        let this = this.display();
        format!(
            "{SAYS}={says} {this} --exact sqlite_cuts::{test} --ignored --nocapture --test-threads 1"
        )
    };
    let states = crate::common::number("STETFS_SQLITE_STATES", 24);
    answer(&[
        "crash",
        "cut",
        image.path().to_str().unwrap(),
        "-o",
        options,
        "--prepare",
        &again("the_database_is_made"),
        "--run",
        &again("transactions_are_told"),
        "--check",
        &again("what_a_crash_left_is_judged"),
        "--states",
        &states.to_string(),
        "--seconds",
        "3600",
        "--jobs",
        "2",
        "--seed",
        &seed.to_string(),
    ])
}

#[test]
fn a_power_cut_loses_and_tears_nothing() {
    let seed = crate::common::seed("STETFS_SQLITE_SEED");
    for (journal, nth) in ["data", "ldj", "stet", "afs"].iter().zip(0..) {
        let (code, seen) = cut(&format!("journal={journal},atomic"), "truth", seed + nth);
        println!("{seen}");
        assert_eq!((code, &seen["broken"]), (0, &0.into()), "{seen:#}");
        assert!(seen["told"].as_u64().unwrap() >= 40, "{seen:#}");
        assert!(seen["cut_again"].as_u64().unwrap() > 0, "{seen:#}");
    }
}

/// The judge detects failures: a file system without atomic writes, which overwrites in place,
/// claims to have them.
#[test]
fn a_power_cut_where_atomic_writes_are_only_said_breaks_the_database() {
    let seed = crate::common::seed("STETFS_SQLITE_SEED");
    let (code, seen) = cut("journal=ordered", "yes", seed);
    println!("{seen}");
    assert_eq!(code, 7, "{seen:#}");
    assert!(seen["broken"].as_u64().unwrap() > 0, "{seen:#}");
}
