//! Threads that only run where a processor would else be idle, and take turns with nobody: in place
//! of the kernel's own way to keep processors awake, where that is not ours to use.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use crate::sys;

/// More than this need not be awake for one client and what serves it.
const MOST: usize = 2;
/// They end when no request came for so long. Then a sleeping processor is not what anybody waits
/// for.
const QUIET: Duration = Duration::from_micros(500);
/// Turns between two looks at the requests: some tens of µs.
const TURNS: u32 = 500;

/// How many there are.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST))
}

/// Makes the calling thread one that any other thread goes before.
pub(super) fn yield_to_all() -> std::io::Result<()> {
    sys::be_idle_class()
}

/// Spins until no request came for a while, or it is to end.
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
