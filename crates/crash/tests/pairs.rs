//! A bounded run of the swarm with pairwise plans: each pair of values of two dimensions meets,
//! from a fixed seed, with a few crash states per run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stetfs_crash::swarm::cover::Cover;
use stetfs_crash::swarm::coverage::Coverage;
use stetfs_crash::swarm::pulse::Pulse;
use stetfs_crash::swarm::run::{Effort, run};

/// Number of crash states of each run.
const STATES: u64 = 4;
/// Most runs; a need for more means that some pairs no longer come about.
const MOST: u64 = 600;

#[test]
fn each_pair_of_features_meets_and_keeps_its_promises() {
    let cover = Mutex::new(Cover::new(&[]));
    let coverage = Mutex::new(Coverage::default());
    let next = AtomicU64::new(0);
    let job = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            assert!(
                n < MOST,
                "pairs are left: {:?}",
                cover.lock().unwrap().left()
            );
            let Some(plan) = cover.lock().unwrap().next(2_000_000 + n) else {
                return;
            };
            let effort = Effort {
                states: STATES,
                ..Effort::default()
            };
            let done = run(&plan, &effort, &Arc::new(Pulse::default())).unwrap();
            if let Some(found) = done.found {
                panic!("{plan}\n{}", found.finding);
            }
            cover.lock().unwrap().done(&plan, &done.plan);
            coverage.lock().unwrap().add(&done.plan, done.tried.states);
        }
    };
    let jobs = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(job);
        }
    });
    let covered = coverage.lock().unwrap().covered(false);
    let (left, never) = cover.lock().unwrap().left();
    println!("{covered:?}, {never} that do not meet");
    assert_eq!((left, covered.met), (0, covered.judged));
    assert!(never * 20 < covered.pairs, "{never} of {}", covered.pairs);
}
