//! Polling for the next request before sleeping.
//!
//! A request that is served on its client's own processor costs two thread switches, which are most
//! of its time. While all requests come to one thread, in close succession, that thread polls for
//! the next one on another processor: then only the client's sleep and its wake-up are left.
//! Polling ends when requests come to another thread too (two clients need two processors), when
//! none comes for a while, and when other threads need the processor.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::system::sys;

/// Maximum time of one poll.
const SPIN: Duration = Duration::from_micros(50);
/// Number of close requests in a row that starts polling.
const ROW: u32 = 64;
/// Weight of a request that comes late or is served for long, compared with a close one.
const WORTH: u32 = 32;
/// Sum of these weights above which polling ends.
const VAIN: u32 = 3 * WORTH;
/// Number of requests between two checks for preemptions.
const TERM: u32 = 1024;
/// Maximum number of preemptions between two checks.
const OTHERS: u64 = 16;
/// Pause of polling after more preemptions.
const PAUSE: Duration = Duration::from_secs(1);
/// Turns of the poll between two reads of the clock.
const TURNS: u32 = 32;

/// The polling state of one thread.
pub(crate) struct Attention {
    shared: Option<Arc<Shared>>,
    /// The thread's number.
    number: u64,
    /// Number of close requests in a row, all to this thread.
    row: u32,
    /// Weighted count of requests for which polling did not pay, less those for which it did.
    vain: u32,
    on: bool,
    /// Time of the last request, and of the beginning of the current wait.
    came: Instant,
    since: Instant,
    /// Beginning of a pause of polling.
    pause: Option<Instant>,
    /// Number of preemptions at the beginning of the term.
    others: u64,
}

impl Attention {
    pub(super) fn new(shared: Option<&Arc<Shared>>) -> Attention {
        let shared = shared.map(Arc::clone);
        let before = |s: &Arc<Shared>| s.attended.threads.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        Attention {
            number: 1 + shared.as_ref().map_or(0, before),
            shared,
            row: 0,
            vain: 0,
            on: false,
            came: now,
            since: now,
            pause: None,
            others: 0,
        }
    }

    /// Records a request; returns whether the thread will poll for the next one.
    pub(crate) fn request(&mut self) -> bool {
        let Some(shared) = &self.shared else {
            return false;
        };
        let last = &shared.attended.last;
        let mine = last.load(Ordering::Relaxed) == self.number;
        if !mine {
            last.store(self.number, Ordering::Relaxed);
        }
        let now = Instant::now();
        // A request that is served for long gains little.
        let served = self.since.duration_since(self.came);
        let close = served.max(now.duration_since(self.since)) < SPIN;
        self.came = now;
        self.vain = match close {
            true => self.vain.saturating_sub(1),
            false => self.vain + WORTH,
        };
        if !mine || self.vain > VAIN || !(close || self.on) {
            (self.row, self.on, self.vain) = (0, false, 0);
            return false;
        }
        self.row += 1;
        if self.row >= if self.on { TERM } else { ROW } {
            self.term();
        }
        self.on
    }

    /// Decides at the end of a row, or of a term.
    fn term(&mut self) {
        self.row = 0;
        let others = sys::times_preempted();
        let few = others.wrapping_sub(self.others) < OTHERS;
        self.others = others;
        let paused = self.pause.is_some_and(|at| at.elapsed() < PAUSE);
        if self.on && !few {
            self.pause = Some(Instant::now());
        }
        self.on = if self.on { few } else { !paused };
    }

    /// Whether the thread polls.
    pub(crate) fn looks(&self) -> bool {
        self.on
    }

    /// Called when the thread has nothing to do: polls, if polling is on, until `came` returns true
    /// or the time is up.
    pub(crate) fn wait(&mut self, mut came: impl FnMut() -> bool) {
        if self.shared.is_none() {
            return;
        }
        self.since = Instant::now();
        if !self.on {
            return;
        }
        let mut found = || {
            (0..TURNS).any(|_| {
                spin_loop();
                came()
            })
        };
        while !found() && self.since.elapsed() < SPIN {}
        if let Some(shared) = &self.shared {
            let micros = self.since.elapsed().as_micros() as u64;
            shared.attended.micros.fetch_add(micros, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Awake, Hold};
    use super::*;

    fn awake() -> Awake {
        Awake::with(Hold::by_threads(None)).unwrap()
    }

    fn attention(awake: &Awake) -> Attention {
        awake.pulse().attention(true)
    }

    /// A machine that stalls for a moment breaks a row, so there are several attempts.
    fn in_some_try(attempt: impl Fn(&Awake) -> bool) {
        assert!((0..50).any(|_| attempt(&awake())));
    }

    /// Simulates `n` requests, each `late` and served for `long`; returns whether the thread polls
    /// then.
    fn requests(to: &mut Attention, n: u32, late: Duration, long: Duration) -> bool {
        let pass = |time: Duration| {
            if !time.is_zero() {
                std::thread::sleep(time);
            }
        };
        (0..n).fold(false, |_, _| {
            to.wait(|| true);
            pass(late);
            let looks = to.request();
            pass(long);
            looks
        })
    }

    const SLOW: Duration = Duration::from_micros(60);
    const QUICK: Duration = Duration::ZERO;

    #[test]
    fn a_row_of_requests_makes_it_look_until_another_thread_has_one() {
        in_some_try(|awake| {
            let (mut one, mut other) = (attention(awake), attention(awake));
            let before = requests(&mut one, ROW / 2, QUICK, QUICK);
            let after = requests(&mut one, ROW, QUICK, QUICK);
            let others = requests(&mut other, 1, QUICK, QUICK);
            let then = requests(&mut one, 1, QUICK, QUICK);
            (before, after, others, then) == (false, true, false, false)
        });
    }

    #[test]
    fn what_comes_late_or_is_served_for_long_is_not_looked_for() {
        let awake = awake();
        let mut one = attention(&awake);
        assert!(!requests(&mut one, 2 * ROW, SLOW, QUICK));
        assert!(!requests(&mut one, 2 * ROW, QUICK, SLOW));
        in_some_try(|awake| {
            let mut one = attention(awake);
            requests(&mut one, 2 * ROW, QUICK, QUICK)
                && requests(&mut one, 1, SLOW, QUICK)
                && !requests(&mut one, 5, SLOW, QUICK)
        });
    }

    #[test]
    fn it_looks_until_something_comes_or_it_has_looked_long_enough() {
        in_some_try(|awake| {
            let mut one = attention(awake);
            let on = requests(&mut one, 2 * ROW, QUICK, QUICK);
            let begin = Instant::now();
            one.wait(|| false);
            let vain = begin.elapsed();
            let mut turns = 0;
            one.wait(|| {
                turns += 1;
                turns == 3
            });
            on && turns == 3 && (SPIN..20 * SPIN).contains(&vain)
        });
    }

    #[test]
    fn without_other_processors_it_never_looks() {
        let awake = awake();
        let mut one = awake.pulse().attention(false);
        assert!(!requests(&mut one, 4 * ROW, QUICK, QUICK));
        let mut off = Awake::off().pulse().attention(true);
        assert!(!requests(&mut off, 4 * ROW, QUICK, QUICK));
    }
}
