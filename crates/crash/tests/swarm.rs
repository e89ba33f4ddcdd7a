//! A bounded run of the swarm: fixed seeds, which draw volumes, journals, operations and crashes.

use std::sync::Arc;

use stetfs_crash::swarm::plan::{Fixed, Plan};
use stetfs_crash::swarm::pulse::Pulse;
use stetfs_crash::swarm::run::{Effort, run};

fn fixed(text: &str) -> Vec<Fixed> {
    let each = text.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    each.collect()
}

/// Runs these seeds with `states` states each; no promise may be broken. Gives the number of
/// devices that failed.
fn runs(seeds: impl IntoIterator<Item = u64>, with: &str, states: u64) -> usize {
    let effort = Effort {
        states,
        ..Effort::default()
    };
    let mut failed = 0;
    for seed in seeds {
        let plan = Plan::draw(seed, &fixed(with)).unwrap();
        let done = run(&plan, &effort, &Arc::new(Pulse::default())).unwrap();
        if let Some(found) = done.found {
            panic!("{plan}\n{}", found.finding);
        }
        failed += usize::from(done.has_failed);
    }
    failed
}

#[test]
fn what_is_read_without_a_crash_is_what_was_written() {
    runs(1000..1012, "", 0);
}

#[test]
fn crashes_of_all_journals_keep_what_was_promised() {
    for preset in ["ordered", "data", "ldj", "ijournal", "stet", "nvm"] {
        runs(1100..1103, &format!("preset={preset}"), 24);
    }
}

#[test]
fn a_device_that_fails_takes_nothing_that_was_acknowledged() {
    for fault in [
        "flush-once",
        "flush-on",
        "flush-inside",
        "write-once",
        "write-on",
        "write-range",
        "full-for-now",
        "full-on",
        "read-once",
        "read-range",
    ] {
        let failed = runs(1200..1208, &format!("fault={fault}"), 12);
        println!("{fault}: {failed} devices failed");
        assert!(failed > 0, "{fault} never hit");
    }
}

/// The number of the run, counted from 1, that finds a canary, of `runs` runs from this
/// seed.
fn found(canary: &str, with: &str, seed: u64, runs: u64) -> Option<u64> {
    let with = fixed(&format!("canary={canary} {with}"));
    (0..runs)
        .position(|n| {
            let plan = Plan::draw(seed + n, &with).unwrap();
            let effort = Effort {
                states: 30,
                ..Effort::default()
            };
            let done = run(&plan, &effort, &Arc::new(Pulse::default())).unwrap();
            done.found.is_some()
        })
        .map(|n| n as u64 + 1)
}

#[test]
fn a_flush_that_is_forgiven_is_found() {
    let with = "fault=flush-inside preset=ordered sizes=large op-write=much op-create=much \
                op-fsync=some threads=1";
    for canary in ["forgive-flush", "forgive-inner-flush"] {
        let n = found(canary, with, 1315, 5);
        println!("{canary}: found by run {n:?}");
        assert!(n.is_some(), "{canary} is not found");
    }
}

#[test]
fn a_volume_on_a_server_keeps_what_was_promised() {
    for fault in ["none", "flush-once", "write-range", "read-once"] {
        let failed = runs(1400..1406, &format!("transport=nbd fault={fault}"), 12);
        println!("{fault}: {failed} devices failed");
        assert_eq!(failed > 0, fault != "none", "{fault}");
    }
}

/// A forgetful server with a client that does not rewrite the lost data.
#[test]
fn a_client_that_forgets_with_its_server_is_found() {
    let n = found("no", "transport=nbd fault=careless", 1500, 20);
    println!("found by run {n:?}");
    assert!(n.is_some());
}

#[test]
fn a_server_that_dies_takes_nothing_that_was_promised() {
    for fault in ["forgetful", "dies"] {
        let failed = runs(1500..1508, &format!("transport=nbd fault={fault}"), 12);
        println!("{fault}: {failed} servers died");
        assert!(failed > 0, "{fault} never happened");
    }
}

/// Needs root.
#[test]
fn the_kernel_shows_what_stetfs_does() {
    let effort = Effort {
        states: 48,
        kernel: true,
        ..Effort::default()
    };
    for preset in ["ordered", "data", "writeback", "stet"] {
        for seed in 1600..1602 {
            let plan = Plan::draw(seed, &fixed(&format!("preset={preset} block=1024"))).unwrap();
            let done = run(&plan, &effort, &Arc::new(Pulse::default())).unwrap();
            if let Some(found) = done.found {
                panic!("{plan}\n{}", found.finding);
            }
            println!("{preset}: {} of {}", done.tried.mounted, done.tried.states);
        }
    }
}
