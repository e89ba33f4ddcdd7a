//! Requests that return when they would have finished on a device of some model.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Clock;

/// A model's clock that runs with the time of day.
pub(crate) struct Pace {
    start: Instant,
    clock: Mutex<Clock>,
}

impl Pace {
    pub(crate) fn new(clock: Clock) -> Pace {
        Pace {
            start: Instant::now(),
            clock: Mutex::new(clock),
        }
    }

    /// What `ask` of the clock says, given the time: when something is done.
    pub(crate) fn ask(&self, ask: impl FnOnce(&mut Clock, u64) -> u64) -> u64 {
        // Under the lock, so that the clock's time does not go back.
        let mut clock = self.clock.lock();
        ask(&mut clock, self.start.elapsed().as_nanos() as u64)
    }

    /// Returns `nanos` after the start.
    pub(crate) fn wait(&self, nanos: u64) {
        let until = Duration::from_nanos(nanos);
        if let Some(left) = until.checked_sub(self.start.elapsed()) {
            precise();
            thread::sleep(left);
        }
    }
}

/// Lets this thread's sleeps end when they should: the default is up to 50 µs later.
fn precise() {
    thread_local! {
        static SET: () = {
            // Where it is refused sleeps are as they are.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        };
    }
    SET.with(|()| ());
}
