//! Precedence of syncs of single files over background write-back. A device processes its requests
//! in order, so a sync waits for everything that the device got before it.

use std::time::Duration;

use stetfs_sync::timed::{Condvar, Instant, Mutex};

/// The time after a sync in which further syncs are expected.
const RECENT: Duration = Duration::from_secs(1);
/// The longest time that write-back waits for syncs, however many there are.
const LONGEST: Duration = Duration::from_millis(5);

/// The priority of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritebackPriority {
    /// A caller waits for it.
    Awaited,
    /// A commit does it; a caller may wait for the commit.
    Commit,
    /// No caller waits for it.
    Background,
}

/// The syncs that write-back gives way to.
#[derive(Default)]
pub(in crate::data) struct Precedence {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of syncs that began, and that ended.
    began: u64,
    ended: u64,
    last: Option<Instant>,
}

/// A sync that is under way.
pub(in crate::data) struct Running<'a>(&'a Precedence);

impl Precedence {
    /// Begins a sync; it ends when the result is dropped.
    pub(in crate::data) fn begin(&self) -> Running<'_> {
        self.state.lock().began += 1;
        Running(self)
    }

    /// Whether a sync is under way.
    pub(in crate::data) fn is_running(&self) -> bool {
        self.running() > 0
    }

    /// The number of syncs under way.
    pub(in crate::data) fn running(&self) -> u64 {
        let s = self.state.lock();
        s.began - s.ended
    }

    /// Whether syncs are expected, so that the device should get no more at once than a sync may
    /// wait for.
    pub(in crate::data) fn is_claimed(&self) -> bool {
        let s = self.state.lock();
        s.began != s.ended || s.last.is_some_and(|last| last.elapsed() < RECENT)
    }

    /// Waits until as many syncs have ended as began before, at most [`LONGEST`]. The caller holds
    /// no lock that a sync takes.
    pub(in crate::data) fn give_way(&self) {
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
