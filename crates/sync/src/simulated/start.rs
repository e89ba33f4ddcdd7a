//! Starting a simulation and waiting for its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::cost::{Charge, Settings, pin_host};
use super::operations::{now, point};
use super::profile::Waited;
use super::scheduler::State;
use super::world::{CHEAP, Op, Overhead, SimulationError, World, processor_time};

/// The result of a simulation.
#[derive(Debug)]
pub struct Outcome<T> {
    /// The result of the first thread.
    pub result: T,
    /// Virtual nanoseconds from the start to its end.
    pub nanos: u64,
    /// Number of scheduling points.
    pub steps: u64,
    /// A number that is equal for equal runs.
    pub trace: u64,
    /// The waits since the start, or since [`take_profile`](super::control::take_profile), longest
    /// first.
    pub waits: Vec<Waited>,
}

/// The shim's own processor time, by counting operations without work.
fn overhead(settings: Settings) -> Overhead {
    static KNOWN: OnceLock<Overhead> = OnceLock::new();
    const ROUNDS: u64 = 20_000;
    /// Nanoseconds of one round, by a clock.
    fn each(clock: fn() -> u64, round: impl Fn()) -> u64 {
        let begin = clock();
        (0..ROUNDS).for_each(|_| round());
        (clock() - begin) / ROUNDS
    }
    *KNOWN.get_or_init(|| {
        let one = Settings {
            cores: 1,
            ..settings
        };
        let empty = start(one, Overhead::default(), || {
            let charged = || now().unwrap_or(0);
            let point = each(charged, || {
                point(Op::Other);
            });
            let lock = super::Mutex::new(0_u64);
            let pair = each(charged, || *lock.lock() += 1);
            let real = parking_lot::Mutex::new(0_u64);
            let real_pair = each(processor_time, || *std::hint::black_box(&real).lock() += 1);
            let word = super::atomic::AtomicU64::new(0);
            let atomic = each(processor_time, || {
                word.fetch_add(1, Ordering::Relaxed);
            });
            let real = AtomicU64::new(0);
            let real_atomic = each(processor_time, || {
                std::hint::black_box(&real).fetch_add(1, Ordering::Relaxed);
            });
            // Each so-manieth atomic is a point, whose cost is known.
            let rare = point / u64::from(CHEAP);
            Overhead {
                point,
                lock: pair.saturating_sub(real_pair) / 2,
                small: atomic.saturating_sub(real_atomic + rare),
            }
        });
        empty.map_or_else(|_| Overhead::default(), |outcome| outcome.result)
    })
}

/// Runs `first` as the first thread of a simulation, and returns when it ends. Threads that still
/// live then stay where they are until the process ends: `first` has to join those that matter.
///
/// # Errors
/// If nothing can go on, if a thread is stuck outside of the simulation, or if `first` panics.
pub fn run<T: Send + 'static>(
    settings: Settings,
    first: impl FnOnce() -> T + Send + 'static,
) -> Result<Outcome<T>, SimulationError> {
    let overhead = match settings.charge {
        Charge::Measured => overhead(settings),
        Charge::Table => Overhead::default(),
    };
    start(settings, overhead, first)
}

fn start<T: Send + 'static>(
    settings: Settings,
    overhead: Overhead,
    first: impl FnOnce() -> T + Send + 'static,
) -> Result<Outcome<T>, SimulationError> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let world = Arc::new(World {
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        settings,
        overhead,
        state: Mutex::new(State::new(settings)),
        batons: Mutex::default(),
        end: Mutex::new(None),
        ended: Condvar::new(),
    });
    let task = world.task("first".to_owned(), 0);
    let host = std::thread::Builder::new().name("first".to_owned());
    let spawned = host.spawn(move || {
        // One processor of the host: a baton then passes without waking another.
        if let Some(processor) = host_processor() {
            pin_host(processor);
        }
        let _entered = task.enter();
        first()
    });
    let spawned = spawned.map_err(|e| SimulationError::Panicked(e.to_string()))?;
    {
        let mut state = world.state.lock();
        state.pick();
    }
    world.baton(0).give();
    await_end(&world)?;
    let result = spawned.join().map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        SimulationError::Panicked(text.unwrap_or_else(|| "without a text".to_owned()))
    })?;
    let mut state = world.state.lock();
    Ok(Outcome {
        result,
        nanos: state.clock(0),
        steps: state.steps,
        trace: state.trace,
        waits: state.profile.take(),
    })
}

/// Waits for the simulation's end, and sees to it that it goes on.
fn await_end(world: &World) -> Result<(), SimulationError> {
    const LOOK: Duration = Duration::from_millis(200);
    let mut end = world.end.lock();
    let mut seen = (0, std::time::Instant::now());
    loop {
        if let Some(how) = end.clone() {
            return how;
        }
        world.ended.wait_for(&mut end, LOOK);
        if end.is_some() {
            continue;
        }
        let state = world.state.lock();
        if state.steps != seen.0 {
            seen = (state.steps, std::time::Instant::now());
        } else if seen.1.elapsed() > world.settings.patience {
            return Err(SimulationError::Stuck(state.running()));
        }
    }
}

/// The last of the processors that the process may use: the first serves interrupts more often.
fn host_processor() -> Option<usize> {
    let all = rustix::thread::sched_getaffinity(None).ok()?;
    (0..rustix::thread::CpuSet::MAX_CPU).rfind(|cpu| all.is_set(*cpu))
}
