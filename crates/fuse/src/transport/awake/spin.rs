//! Threads that run only where a processor would be idle: they replace the kernel's way to keep
//! processors awake, where this process may not use that.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::system::sys;

/// Maximum number: one client and its server need no more processors.
const MOST: usize = 2;
/// Time without requests after which they stop: the wake-up of a sleeping processor matters little
/// then.
const QUIET: Duration = Duration::from_micros(500);
/// Turns between two checks of the request count: some tens of µs.
const TURNS: u32 = 500;

/// The number of threads.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST))
}

/// Gives the calling thread the lowest priority.
pub(super) fn yield_to_all() -> std::io::Result<()> {
    sys::be_idle_class()
}

/// Spins until no request came for a while, or `end` returns true.
pub(super) fn spin(requests: impl Fn() -> u64, end: impl Fn() -> bool) {
    let mut last = requests();
    let mut since = Instant::now();
    while since.elapsed() < QUIET && !end() {
        for _ in 0..TURNS {
            spin_loop();
        }
        let now = requests();
        if now != last {
            last = now;
            since = Instant::now();
        }
    }
}
