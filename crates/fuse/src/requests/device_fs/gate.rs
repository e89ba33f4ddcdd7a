//! A gate before a device: while it is closed, requests wait.

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Number of requests inside.
    inside: usize,
}

/// A gate for requests to a device. It is open at first.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A request inside the gate; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

impl Gate {
    /// Closes the gate, and waits until no request is inside.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        while state.inside > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.state.lock().closed = false;
        self.changed.notify_all();
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Enters, if the gate is open.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Inside(self))
    }

    /// Enters once the gate is open.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut state = self.state.lock();
        while state.closed {
            self.changed.wait(&mut state);
        }
        state.inside += 1;
        Inside(self)
    }
}
