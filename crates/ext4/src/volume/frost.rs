//! Where changes wait while the volume is frozen.

use std::sync::atomic::{AtomicBool, Ordering};

/// Where changes wait while the volume is frozen.
#[derive(Default)]
pub(crate) struct Frost {
    /// As `state`, so that nobody needs the lock to see that nothing is held back.
    pub(super) frozen: AtomicBool,
    state: parking_lot::Mutex<()>,
    thawed: parking_lot::Condvar,
}

impl Frost {
    /// Returns once changes may be made.
    pub(super) fn pass(&self) {
        if !self.frozen.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        while self.frozen.load(Ordering::Acquire) {
            self.thawed.wait(&mut state);
        }
    }

    pub(super) fn set(&self, frozen: bool) {
        let _state = self.state.lock();
        self.frozen.store(frozen, Ordering::Release);
        self.thawed.notify_all();
    }
}
