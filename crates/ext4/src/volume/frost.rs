//! The frost of a volume: changes wait while it is frozen, and background work ends before it is.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// Holds changes back, and background work.
#[derive(Default)]
pub(crate) struct Frost {
    /// Changes wait. Set with `state` locked, and read without, so that nobody needs the lock to
    /// see that nothing is held back.
    pub(super) frozen: AtomicBool,
    /// Held by who freezes or thaws, to its end.
    pub(super) turn: Mutex<()>,
    state: Mutex<Background>,
    /// Signalled when changes may go on, and when the last background work ends.
    changed: Condvar,
}

/// Work that nobody's operation waits for: write-back by age, hiding of lost blocks.
#[derive(Default)]
struct Background {
    /// None begins.
    held: bool,
    /// Pieces of work under way.
    working: usize,
}

/// A piece of background work: the volume is not frozen before it ends.
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
    /// Returns once changes may be made.
    pub(super) fn pass(&self) {
        if !self.frozen.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        while self.frozen.load(Ordering::Acquire) {
            self.changed.wait(&mut state);
        }
    }

    /// Begins a piece of background work; none on a volume that is frozen, or about to be.
    pub(crate) fn work(&self) -> Option<Working<'_>> {
        let mut state = self.state.lock();
        if state.held {
            return None;
        }
        state.working += 1;
        Some(Working(self))
    }

    /// Ends background work until [`thaw`](Self::thaw): returns once none is under way.
    pub(crate) fn hold_work(&self) {
        let mut state = self.state.lock();
        state.held = true;
        while state.working > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Changes wait from here on.
    pub(super) fn freeze(&self) {
        let _state = self.state.lock();
        self.frozen.store(true, Ordering::Release);
    }

    /// Changes and background work go on.
    pub(crate) fn thaw(&self) {
        let mut state = self.state.lock();
        state.held = false;
        self.frozen.store(false, Ordering::Release);
        self.changed.notify_all();
    }
}
