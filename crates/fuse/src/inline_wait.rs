//! Whether the thread that serves a request may wait for the device in it: that saves two changes
//! of threads, but what comes to this thread meanwhile waits, too.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
    static OTHERS_SERVE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread may wait in the request that it serves.
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.get()
}

/// Whether another thread takes the next request while this one waits.
pub(crate) fn others_serve() -> bool {
    OTHERS_SERVE.get()
}

/// Says both of this thread and the next request.
pub(crate) fn set(may_wait: bool, others_serve: bool) {
    MAY_WAIT.set(may_wait);
    OTHERS_SERVE.set(others_serve);
}

/// The threads that requests of one queue can come to.
#[derive(Default)]
pub(crate) struct Servers {
    idle: AtomicUsize,
}

impl Servers {
    /// Waits for a request by `wait`; also whether another thread is there for the next.
    pub(crate) fn idle<T>(&self, wait: impl FnOnce() -> T) -> (T, bool) {
        self.idle.fetch_add(1, Ordering::AcqRel);
        let came = wait();
        (came, self.idle.fetch_sub(1, Ordering::AcqRel) > 1)
    }
}

/// So many requests of others, …
const MANY: usize = 4;
/// … in this time, are too many to let wait.
const LATELY: Duration = Duration::from_micros(2500);

/// Who asked a thread lately.
#[derive(Default)]
pub(crate) struct Askers {
    /// When, and the process.
    last: [Option<(Instant, u32)>; 2 * MANY],
    next: usize,
}

impl Askers {
    /// A request of process `pid` comes; whether others than it ask often.
    pub(crate) fn ask(&mut self, pid: u32) -> bool {
        let now = Instant::now();
        let recent = |at: &Instant| now.duration_since(*at) < LATELY;
        let others = self
            .last
            .iter()
            .flatten()
            .filter(|(at, p)| *p != pid && recent(at));
        let crowded = others.count() >= MANY;
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
        // On a machine that stands still for milliseconds it is not one.
        assert!(asked.iter().any(|crowded| *crowded));
        std::thread::sleep(LATELY);
        assert!(!askers.ask(9));
    }
}
