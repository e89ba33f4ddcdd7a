//! Writing in the background gives way to syncs of single files: a device works on what it has in
//! order, so a sync waits behind what was given to it before.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// After a sync for so long others are expected.
const RECENT: Duration = Duration::from_secs(1);
/// The longest wait for syncs: however many there are, data goes home.
const LONGEST: Duration = Duration::from_millis(5);

/// For whom data is written home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritebackPriority {
    /// Somebody waits for it.
    Awaited,
    /// A commit, which somebody may wait for.
    Commit,
    /// Nobody in particular.
    Background,
}

/// The syncs that others give way to.
#[derive(Default)]
pub(super) struct Precedence {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Syncs that began, and that ended.
    began: u64,
    ended: u64,
    last: Option<Instant>,
}

/// A sync that runs.
pub(super) struct Running<'a>(&'a Precedence);

impl Precedence {
    /// A sync begins; it ends with what this returns.
    pub(super) fn begin(&self) -> Running<'_> {
        self.state.lock().began += 1;
        Running(self)
    }

    /// Whether a sync is under way.
    pub(super) fn is_running(&self) -> bool {
        self.running() > 0
    }

    /// How many are.
    pub(super) fn running(&self) -> u64 {
        let s = self.state.lock();
        s.began - s.ended
    }

    /// Whether syncs are to be expected, so that no more should be given to the device at once than
    /// they can wait behind.
    pub(super) fn is_claimed(&self) -> bool {
        let s = self.state.lock();
        s.began != s.ended || s.last.is_some_and(|last| last.elapsed() < RECENT)
    }

    /// Waits until as many syncs have ended as began before, at most [`LONGEST`]. No lock is held
    /// that a sync takes.
    pub(super) fn give_way(&self) {
        let until = Instant::now() + LONGEST;
        let mut s = self.state.lock();
        let before = s.began;
        while s.ended < before && !self.ended.wait_until(&mut s, until).timed_out() {}
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut s = self.0.state.lock();
        s.ended += 1;
        s.last = Some(Instant::now());
        drop(s);
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_way_to_what_runs_and_not_for_ever() {
        let precedence = Precedence::default();
        assert!(!precedence.is_claimed());
        precedence.give_way();
        let first = precedence.begin();
        assert!(precedence.is_claimed());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| precedence.give_way());
            drop(first);
            assert!(waiting.join().is_ok());
        });
        assert!(precedence.is_claimed(), "others may follow");
        let _never_ends = precedence.begin();
        let begun = Instant::now();
        precedence.give_way();
        assert!(begun.elapsed() >= LONGEST);
    }
}
