//! Pacing: requests that return when they would complete on a device of some model.

use std::cell::Cell;
use std::time::Duration;

use stetfs_sync::timed::{Instant, Mutex, thread};

use crate::clock::Clock;

/// The time base of a model's clock.
enum Time {
    /// The time of day; waiting threads sleep.
    OfDay(Instant),
    /// Simulated time in nanoseconds, which waiting advances at once.
    Simulated(Mutex<u64>),
}

impl Time {
    fn now(&self) -> u64 {
        match self {
            Time::OfDay(start) => start.elapsed().as_nanos() as u64,
            Time::Simulated(now) => *now.lock(),
        }
    }
}

thread_local! {
    /// Duration of this thread's last request in nanoseconds.
    static TOOK: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds from the arrival to the completion of this thread's last request to a device with a
/// model, in that device's time; the time of other requests does not count.
pub fn took() -> u64 {
    TOOK.get()
}

/// A model's clock with its time base.
pub(crate) struct Pace {
    time: Time,
    clock: Mutex<Clock>,
}

impl Pace {
    /// A pace in the time of day.
    pub(crate) fn new(clock: Clock) -> Pace {
        Pace {
            time: Time::OfDay(Instant::now()),
            clock: Mutex::new(clock),
        }
    }

    /// A pace in simulated time, which advances only while a request waits.
    pub(crate) fn simulated(clock: Clock) -> Pace {
        Pace {
            time: Time::Simulated(Mutex::new(0)),
            clock: Mutex::new(clock),
        }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.time.now()
    }

    /// Asks the clock for the completion time of a request at the present time.
    pub(crate) fn ask(&self, ask: impl FnOnce(&mut Clock, u64) -> u64) -> u64 {
        // The time is read under the lock, so that the clock's time does not go back.
        let mut clock = self.clock.lock();
        let now = self.time.now();
        let done = ask(&mut clock, now);
        TOOK.set(done.saturating_sub(now));
        done
    }

    /// Returns `nanos` nanoseconds after the start.
    pub(crate) fn wait(&self, nanos: u64) {
        match &self.time {
            Time::OfDay(start) => {
                let until = Duration::from_nanos(nanos);
                if let Some(left) = until.checked_sub(start.elapsed()) {
                    precise();
                    thread::sleep(left);
                }
            }
            Time::Simulated(now) => {
                let mut now = now.lock();
                *now = nanos.max(*now);
            }
        }
    }
}

/// Makes this thread's sleeps end on time; by default they end up to 50 µs later.
fn precise() {
    thread_local! {
        static SET: () = {
            // If the kernel refuses this, sleeps keep their default precision.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        };
    }
    SET.with(|()| ());
}
