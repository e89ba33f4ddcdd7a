//! The frost of a volume: while it is frozen, changes wait and no background work runs.

use stetfs_sync::timed::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
};

/// Holds back changes and background work.
#[derive(Default)]
pub(crate) struct Frost {
    /// Changes wait. Set with `state` locked; read without the lock, so that an unfrozen volume
    /// costs no lock.
    pub(super) frozen: AtomicBool,
    /// Held by the thread that freezes or thaws, until it is done.
    pub(crate) turn: Mutex<()>,
    state: Mutex<Background>,
    /// Signalled when changes are allowed again, and when the last background work ends.
    changed: Condvar,
}

/// Background work, which no operation waits for: write-back by age, hiding of lost blocks.
#[derive(Default)]
struct Background {
    /// No new work may begin.
    held: bool,
    /// Number of pieces of work under way.
    working: usize,
}

/// A piece of background work. A freeze waits for its end.
pub(crate) struct Working<'a>(&'a Frost);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.working -= 1;
        if state.working == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Frost {
    /// Waits until changes are allowed.
    pub(super) fn pass(&self) {
        if !self.frozen.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        while self.frozen.load(Ordering::Acquire) {
            self.changed.wait(&mut state);
        }
    }

    /// Begins a piece of background work; `None` on a volume that is frozen or about to be.
    pub(crate) fn work(&self) -> Option<Working<'_>> {
        let mut state = self.state.lock();
        if state.held {
            return None;
        }
        state.working += 1;
        Some(Working(self))
    }

    /// Stops background work until [`thaw`](Self::thaw). Returns when none is under way.
    pub(crate) fn hold_work(&self) {
        let mut state = self.state.lock();
        state.held = true;
        while state.working > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Makes changes wait from here on.
    pub(crate) fn freeze(&self) {
        let _state = self.state.lock();
        self.frozen.store(true, Ordering::Release);
    }

    /// Allows changes and background work again.
    pub(crate) fn thaw(&self) {
        let mut state = self.state.lock();
        state.held = false;
        self.frozen.store(false, Ordering::Release);
        self.changed.notify_all();
    }
}
