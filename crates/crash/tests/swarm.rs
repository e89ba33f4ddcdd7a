//! The swarm, bounded: fixed seeds, which draw volumes, journals, operations and crashes.

#![allow(clippy::unwrap_used)]

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

/// Runs these seeds, so many states of each; all is as it should be.
fn runs(seeds: impl IntoIterator<Item = u64>, with: &str, states: u64) {
    let effort = Effort { states, keep: None };
    for seed in seeds {
        let plan = Plan::draw(seed, &fixed(with)).unwrap();
        let done = run(&plan, &effort, &Arc::new(Pulse::default())).unwrap();
        if let Some(found) = done.found {
            panic!("{plan}\n{}", found.finding);
        }
    }
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
