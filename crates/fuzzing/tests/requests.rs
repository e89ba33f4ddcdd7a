//! The server against malformed requests: a minute of rounds from fixed seeds, or
//! `STETFS_FUZZ_SECONDS` from new ones (`./test --fuzz-requests SECONDS`). `STETFS_FUZZ_SEED`
//! repeats one round. Every fourth round has four threads.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stetfs_fuzzing::requests::{Done, Fault, How, round, shown};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Duration of the usual test. Most of it is waiting: it takes less than a fifth of one processor.
const USUAL: Duration = Duration::from_secs(60);

/// Held by each test, because panics are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn requests_that_no_kernel_sends_do_no_harm() {
    let _alone = ALONE.lock();
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
        None => first..u64::MAX,
    };
    let mut all = Done::default();
    let mut rounds = 0;
    for seed in seeds {
        // The seed decides the number of threads, so that a seed always means the same round.
        let threads = match seed % 4 {
            3 => 4,
            _ => 1,
        };
        let how = How {
            threads,
            ..How::default()
        };
        match round(seed, how) {
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
    // If few requests succeed, the test covers little; in a single round that may happen.
    assert!(rounds == 1 || all.succeeded * 5 > all.requests, "{all:?}");
}

/// The rounds must find each deliberate fault.
#[test]
fn faults_of_a_server_are_found() {
    let _alone = ALONE.lock();
    let faults = [
        (Fault::Panic, "panicked"),
        (Fault::Write, "is another"),
        (Fault::Twice, "2 answers instead of 1"),
        (Fault::Silence, "0 answers instead of 1"),
    ];
    for (fault, what) in faults {
        for threads in [1, 4] {
            let how = How {
                threads,
                fault: Some(fault),
                timeout: Duration::from_secs(3),
            };
            let found = (0..40).find_map(|seed| round(seed, how).err());
            let found = found
                .unwrap_or_else(|| panic!("{fault:?} was not found"))
                .what;
            assert!(found.contains(what), "{fault:?}: {found}");
        }
    }
}
