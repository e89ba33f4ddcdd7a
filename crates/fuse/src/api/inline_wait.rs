//! Decides whether the thread that serves a request may wait for the device in it. That saves two
//! thread switches, but other requests to this thread wait, too.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
    static OTHERS_SERVE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread may wait in its current request.
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.get()
}

/// Whether another thread takes the next request while this one waits.
pub(crate) fn others_serve() -> bool {
    OTHERS_SERVE.get()
}

/// Sets both for this thread's next request.
pub(crate) fn set(may_wait: bool, others_serve: bool) {
    MAY_WAIT.set(may_wait);
    OTHERS_SERVE.set(others_serve);
}

/// The threads that take requests of one queue.
#[derive(Default)]
pub(crate) struct Servers {
    idle: AtomicUsize,
}

impl Servers {
    /// Waits for a request by `wait`; also returns whether another thread is ready for the next
    /// one.
    pub(crate) fn idle<T>(&self, wait: impl FnOnce() -> T) -> (T, bool) {
        self.idle.fetch_add(1, Ordering::AcqRel);
        let came = wait();
        (came, self.idle.fetch_sub(1, Ordering::AcqRel) > 1)
    }
}

/// Number of recent requests of other processes from which on a thread must not wait.
const BUSY_REQUESTS: usize = 4;
/// The time window for recent requests.
const BUSY_WINDOW: Duration = Duration::from_micros(2500);

/// The recent requests of a thread.
#[derive(Default)]
pub(crate) struct Askers {
    /// Time and process of each.
    last: [Option<(Instant, u32)>; 2 * BUSY_REQUESTS],
    next: usize,
}

impl Askers {
    /// Records a request of process `pid`; returns whether other processes have many recent
    /// requests.
    pub(crate) fn ask(&mut self, pid: u32) -> bool {
        let now = Instant::now();
        let recent = |at: &Instant| now.duration_since(*at) < BUSY_WINDOW;
        let others = self
            .last
            .iter()
            .flatten()
            .filter(|(at, p)| *p != pid && recent(at));
        let crowded = others.count() >= BUSY_REQUESTS;
        let next = self.next % self.last.len();
        if let Some(slot) = self.last.get_mut(next) {
            *slot = Some((now, pid));
        }
        self.next = next + 1;
        crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_else_must_be_there() {
        let servers = Servers::default();
        let (inner, alone) = servers.idle(|| servers.idle(|| 7));
        assert_eq!(inner, (7, true));
        assert!(!alone);
    }

    #[test]
    fn one_that_asks_often_is_not_a_crowd() {
        let mut askers = Askers::default();
        assert!((0..100).all(|_| !askers.ask(1)));
        let asked: Vec<bool> = (0..40).map(|i| askers.ask(i % 4)).collect();
        // A machine that stalls for milliseconds may break the row: one hit is enough.
        assert!(asked.iter().any(|crowded| *crowded));
        std::thread::sleep(BUSY_WINDOW);
        assert!(!askers.ask(9));
    }
}
