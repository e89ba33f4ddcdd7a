//! The server against requests that no kernel sends: a few seconds of rounds from fixed seeds, or `STETFS_FUZZ_SECONDS` from new
//! ones (`./test --fuzz-requests SECONDS`). `STETFS_FUZZ_SEED` repeats one round.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stetfs_fuzzing::requests::{Done, round, shown};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Rounds of the usual test, at most.
const ROUNDS: u64 = 60;
/// They take no longer than this by much.
const USUAL: Duration = Duration::from_secs(6);

#[test]
fn requests_that_no_kernel_sends_do_no_harm() {
    let seconds = number("STETFS_FUZZ_SECONDS");
    let first = match seconds {
        Some(_) => {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs()
                << 20
        }
        None => 0,
    };
    let begun = Instant::now();
    let time = seconds.map_or(USUAL, Duration::from_secs);
    let seeds = match number("STETFS_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None if seconds.is_some() => first..u64::MAX,
        None => 0..ROUNDS,
    };
    let mut all = Done::default();
    let mut rounds = 0;
    for seed in seeds {
        match round(seed) {
            Ok(done) => {
                all.requests += done.requests;
                all.succeeded += done.succeeded;
            }
            Err(failure) => {
                for request in &failure.requests {
                    println!("{}", shown(request));
                }
                panic!("STETFS_FUZZ_SEED={seed}: {}", failure.what);
            }
        }
        rounds += 1;
        if begun.elapsed() > time {
            break;
        }
    }
    println!(
        "{rounds} rounds, {} requests, {} of them carried out",
        all.requests, all.succeeded
    );
    // Requests of which nothing succeeds look at little.
    assert!(all.succeeded * 5 > all.requests, "{all:?}");
}
