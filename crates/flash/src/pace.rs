//! Requests that return when they would have finished on a device of some model.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Clock;

/// What a model's clock goes by.
enum Time {
    /// The time of day: whoever waits sleeps.
    OfDay(Instant),
    /// Its own: what is waited for is there at once. Nanoseconds.
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
    /// Nanoseconds that this thread's last request takes.
    static TOOK: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds from when this thread's last request to a device with a model came until it was
/// done, by that device's time: what others let pass meanwhile does not count.
pub fn took() -> u64 {
    TOOK.get()
}

/// A model's clock, and what it goes by.
pub(crate) struct Pace {
    time: Time,
    clock: Mutex<Clock>,
}

impl Pace {
    /// One that runs with the time of day.
    pub(crate) fn new(clock: Clock) -> Pace {
        Pace {
            time: Time::OfDay(Instant::now()),
            clock: Mutex::new(clock),
        }
    }

    /// One whose time passes only while somebody waits.
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

    /// What `ask` of the clock says, given the time: when something is done.
    pub(crate) fn ask(&self, ask: impl FnOnce(&mut Clock, u64) -> u64) -> u64 {
        // Under the lock, so that the clock's time does not go back.
        let mut clock = self.clock.lock();
        let now = self.time.now();
        let done = ask(&mut clock, now);
        TOOK.set(done.saturating_sub(now));
        done
    }

    /// Returns `nanos` after the start.
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
