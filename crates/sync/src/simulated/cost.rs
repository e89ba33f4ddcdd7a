//! The prices of a simulation: what operations cost, and where the price of other work comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Fixed costs in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Taking or releasing a lock (table only: measured work contains it).
    pub lock: u64,
    /// An atomic operation on a cache line that the core has (table only).
    pub atomic: u64,
    /// Any other operation of the shim: a clock that is read, a signal, a channel (table only).
    pub other: u64,
    /// Starting a thread, for the thread that starts it (table only).
    pub spawn: u64,
    /// Giving up the processor.
    pub yielding: u64,
    /// A cache line that comes from another core. Transfers of one line follow one another.
    pub transfer: u64,
    /// Waking a thread that sleeps, for the thread that wakes it.
    pub wake: u64,
    /// From the signal until the woken thread runs on an idle core.
    pub wake_latency: u64,
    /// How long a thread spins for a lock before it sleeps; one that spins needs no waking.
    pub spin: u64,
    /// How much later than its deadline a sleeping thread runs.
    pub sleep_late: u64,
    /// A core that goes on with another thread.
    pub switch: u64,
}

impl Costs {
    /// The table for tests: round numbers of the order of a server of 2020.
    pub const TABLE: Costs = Costs {
        lock: 20,
        atomic: 5,
        other: 30,
        spawn: 10_000,
        yielding: 300,
        transfer: 100,
        wake: 1_500,
        wake_latency: 5_000,
        spin: 3_000,
        sleep_late: 0,
        switch: 1_200,
    };

    /// The table with the costs that can be measured here: a line's transfer, waking, lateness of
    /// sleeps. Takes some 50 ms. With one processor only lateness is measured.
    pub fn measured() -> Costs {
        let mut costs = Costs::TABLE;
        costs.sleep_late = lateness();
        if let Some(pair) = two_processors() {
            costs.transfer = transfer(pair).clamp(20, 1_000);
            let (wake, latency) = waking(pair);
            costs.wake = wake.clamp(200, 20_000);
            costs.wake_latency = latency.clamp(500, 100_000);
        }
        costs
    }
}

/// The source of the price of work between two scheduling points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The processor time that it took on the host, less the shim's own.
    Measured,
    /// Nothing but the table's costs of operations: runs repeat exactly.
    Table,
}

/// On which core a thread runs that nobody has pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Threads are pinned to cores in turn, in the order in which they start.
    RoundRobin,
    /// A thread that wakes up runs on its last core if that is idle, else on the core that is
    /// free first: as kernels do.
    Idle,
}

/// A simulation's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of cores, from 1.
    pub cores: usize,
    /// Breaks ties between threads of the same virtual time.
    pub seed: u64,
    /// The price of work.
    pub charge: Charge,
    /// The price of operations.
    pub costs: Costs,
    /// The placement of threads.
    pub placement: Placement,
    /// Nanoseconds after which a thread leaves its core to another one that waits for it.
    pub slice: u64,
    /// Nanoseconds by which a thread may be ahead of the one with the lowest time before that one
    /// runs. More is faster on the host and less exact.
    pub slack: u64,
    /// Virtual nanoseconds after which the simulation ends with an error: threads that look at
    /// something from time to time never end by themselves, and hide that others wait for ever.
    pub longest: u64,
    /// Time without a scheduling point after which the simulation counts as stuck on the host.
    pub patience: Duration,
}

impl Settings {
    /// `cores` cores with the costs of the table and exact order.
    pub fn table(cores: usize, seed: u64) -> Settings {
        Settings {
            cores,
            seed,
            charge: Charge::Table,
            costs: Costs::TABLE,
            placement: Placement::RoundRobin,
            slice: 1_000_000,
            slack: 0,
            longest: u64::MAX,
            patience: Duration::from_secs(60),
        }
    }

    /// `cores` cores with measured work and the costs of this machine.
    pub fn measured(cores: usize, costs: Costs) -> Settings {
        Settings {
            charge: Charge::Measured,
            costs,
            placement: Placement::Idle,
            ..Settings::table(cores, 0)
        }
    }
}

/// Two processors that the process may use.
fn two_processors() -> Option<[usize; 2]> {
    let all = sched_getaffinity(None).ok()?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    Some([allowed.next()?, allowed.next()?])
}

/// Pins the calling host thread to one processor; on failure it stays where it is.
pub(super) fn pin_host(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    let _ = sched_setaffinity(None, &one);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The median: a processor that the host takes away for a while does not count.
fn median(mut of: Vec<u64>) -> Option<u64> {
    of.sort_unstable();
    of.get(of.len() / 2).copied()
}

/// Lateness of a sleep of 100 µs, with the precision that simulated devices ask for.
fn lateness() -> u64 {
    let sleep = Duration::from_micros(100);
    let sleeps = std::thread::spawn(move || {
        // If the kernel refuses this, sleeps keep their default precision.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        let late = || {
            let begin = Instant::now();
            std::thread::sleep(sleep);
            nanos(begin.elapsed()).saturating_sub(nanos(sleep))
        };
        (0..51).map(|_| late()).collect()
    });
    sleeps.join().ok().and_then(median).unwrap_or(0)
}

/// Time of a cache line's way from one processor to the other.
fn transfer([one, two]: [usize; 2]) -> u64 {
    const PARTS: u64 = 51;
    const ROUNDS: u64 = 400;
    let word = Arc::new(AtomicU64::new(0));
    let turn = |word: Arc<AtomicU64>, processor: usize, odd: u64| {
        pin_host(processor);
        let part = |part: u64| {
            let begin = Instant::now();
            for round in part * ROUNDS..(part + 1) * ROUNDS {
                let mine = 2 * round + odd;
                while word.load(Ordering::Acquire) != mine {
                    std::hint::spin_loop();
                }
                word.store(mine + 1, Ordering::Release);
            }
            nanos(begin.elapsed()) / (2 * ROUNDS)
        };
        median((0..PARTS).map(part).collect())
    };
    let other = {
        let word = word.clone();
        std::thread::spawn(move || turn(word, two, 1))
    };
    let this = std::thread::spawn(move || turn(word, one, 0)).join();
    match (other.join(), this) {
        (Ok(Some(_)), Ok(Some(time))) => time,
        _ => Costs::TABLE.transfer,
    }
}

/// The cost of waking for the thread that wakes, and the time until the other runs.
fn waking([one, two]: [usize; 2]) -> (u64, u64) {
    const ROUNDS: usize = 301;
    let shared = Arc::new((Mutex::new(false), Condvar::new(), AtomicBool::new(false)));
    let sleeper = {
        let shared = shared.clone();
        std::thread::spawn(move || {
            pin_host(two);
            let (flag, signal, woken) = &*shared;
            for _ in 0..ROUNDS {
                let mut set = flag.lock();
                while !*set {
                    signal.wait(&mut set);
                }
                *set = false;
                drop(set);
                woken.store(true, Ordering::Release);
            }
        })
    };
    let waker = std::thread::spawn(move || {
        pin_host(one);
        let (flag, signal, woken) = &*shared;
        let round = || {
            // The sleeper gets the time to sleep.
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_micros(20) {
                std::hint::spin_loop();
            }
            let begin = Instant::now();
            *flag.lock() = true;
            signal.notify_one();
            let spent = nanos(begin.elapsed());
            while !woken.swap(false, Ordering::Acquire) {
                std::hint::spin_loop();
            }
            (spent, nanos(begin.elapsed()))
        };
        let (spent, waited): (Vec<u64>, Vec<u64>) = (0..ROUNDS).map(|_| round()).unzip();
        median(spent).zip(median(waited))
    });
    let result = waker.join();
    match (sleeper.join(), result) {
        (Ok(()), Ok(Some(measured))) => measured,
        _ => (Costs::TABLE.wake, Costs::TABLE.wake_latency),
    }
}
