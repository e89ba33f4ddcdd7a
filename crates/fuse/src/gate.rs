//! A gate before a device: closed, requests wait.

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Requests that went in and did not come out.
    inside: usize,
}

/// Where requests to a device can be made to wait. Open at first.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A request inside; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

impl Gate {
    /// Closes it, and waits until nobody is inside.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        while state.inside > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Opens it.
    pub fn open(&self) {
        self.state.lock().closed = false;
        self.changed.notify_all();
    }

    /// Whether requests wait.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Goes in, if it is open.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Inside(self))
    }

    /// Goes in once it is open.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut state = self.state.lock();
        while state.closed {
            self.changed.wait(&mut state);
        }
        state.inside += 1;
        Inside(self)
    }
}
