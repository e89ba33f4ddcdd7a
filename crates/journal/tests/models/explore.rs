//! Runs of a model in many orders of its steps.
//!
//! A fifth of the orders are random, the others are by PCT (Burckhardt et al., ASPLOS 2010:
//! priorities that change at a few points). The seed is constant, so a failure in the test command
//! repeats. `STETFS_MODEL_SCHEDULES` sets the number of orders, `STETFS_MODEL_SEED` the seed;
//! `STETFS_MODEL_REPLAY` names a file with a failed order to run again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stetfs_journal::Canary;
use stetfs_sync::plain::shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Scheduler,
};
use stetfs_sync::plain::shuttle::{Config, FailurePersistence, Runner};

/// The number of orders of each model, unless the environment sets it.
const SCHEDULES: usize = 1000;
/// The most orders that are tried to find one that fails.
const SEARCH: usize = 400_000;
/// The number of orders with one seed: a fifth at random, the rest by PCT.
const ROUND: usize = 500;
/// The number of points where PCT changes priorities, one for each round in turn.
const CHANGES: [usize; 3] = [3, 2, 4];
const STACK: usize = 512 << 10;
const SEED: u64 = 32;

fn number(name: &str, or: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is to be a number")),
        Err(_) => or,
    }
}

fn seed() -> u64 {
    number("STETFS_MODEL_SEED", SEED)
}

/// An order in which a model failed.
struct Failed {
    /// The number of orders that were run, including this one.
    orders: usize,
    by: &'static str,
    why: String,
}

fn config(keep: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = keep;
    config.silence_warnings = true;
    config
}

fn run<S: Scheduler + 'static>(
    scheduler: S,
    keep: FailurePersistence,
    orders: &Arc<AtomicUsize>,
    model: fn(),
) -> Result<(), String> {
    let orders = Arc::clone(orders);
    let all = move || {
        let count = move || {
            orders.fetch_add(1, Ordering::Relaxed);
            model();
        };
        Runner::new(scheduler, config(keep)).run(count);
    };
    catch_unwind(AssertUnwindSafe(all)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).into()))
            .unwrap_or_default()
    })
}

fn first_failure(
    model: fn(),
    count: usize,
    mut seed: u64,
    keep: impl Fn() -> FailurePersistence,
) -> Option<Failed> {
    let orders = Arc::new(AtomicUsize::new(0));
    let mut left = count;
    for changes in CHANGES.into_iter().cycle() {
        if left == 0 {
            break;
        }
        let now = left.min(ROUND);
        left -= now;
        let random = RandomScheduler::new_from_seed(seed, now.div_ceil(5));
        let pct = PctScheduler::new_from_seed(seed, changes, now - now.div_ceil(5));
        seed += 1;
        let failed = match run(random, keep(), &orders, model) {
            Err(why) => Some(("random", why)),
            Ok(()) => run(pct, keep(), &orders, model).err().map(|e| ("PCT", e)),
        };
        if let Some((by, why)) = failed {
            let orders = orders.load(Ordering::Relaxed);
            return Some(Failed { orders, by, why });
        }
    }
    None
}

/// The directory for the failed order of the model `name`.
fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Checks that the model holds in all orders that are run.
pub fn holds(name: &str, model: fn()) {
    if let Some(file) = std::env::var_os("STETFS_MODEL_REPLAY") {
        let order = ReplayScheduler::new_from_file(file).expect("the file with the order");
        Runner::new(order, config(FailurePersistence::None)).run(model);
        return;
    }
    let count = number("STETFS_MODEL_SCHEDULES", SCHEDULES as u64) as usize;
    let seed = seed();
    let place = directory(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("a directory for failures");
    let keep = || FailurePersistence::File(Some(place.clone()));
    if let Some(Failed { orders, by, why }) = first_failure(model, count, seed, keep) {
        let file = place.join("schedule000.txt");
        panic!(
            "{name} fails in order {orders} ({by}): {why}\nSTETFS_MODEL_REPLAY={} repeats it.",
            file.display()
        );
    }
}

/// A canary with one fault.
pub fn with(set: impl FnOnce(&mut Canary)) -> Canary {
    let mut canary = Canary::default();
    set(&mut canary);
    canary
}

/// Checks that a model with the deliberate fault `name` fails in some order, with a message that
/// contains one of `says`.
pub fn fails_with(name: &str, model: fn(), says: &[&str]) {
    let failed = first_failure(model, SEARCH, seed(), || FailurePersistence::None);
    let Some(Failed { orders, by, why }) = failed else {
        panic!("{name}: nothing is found");
    };
    eprintln!("{name}: found in order {orders} ({by}): {why}");
    assert!(
        says.iter().any(|text| why.contains(text)),
        "{name}: something else is found: {why}"
    );
}
