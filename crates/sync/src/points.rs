//! Synchronisation points: places in the code where a test stops a thread, so that the test needs
//! no sleeps. Release builds have none.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Time limit for a test that waits for a thread to arrive.
const LONG: Duration = Duration::from_secs(30);

/// A held place: the object (by address) and the place's name.
struct Held {
    of: usize,
    name: &'static str,
    /// Number of threads that arrived.
    reached: usize,
    /// Number of this hold.
    id: u64,
}

struct State {
    held: Vec<Held>,
    ids: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    held: Vec::new(),
    ids: 0,
});
/// Signals that a thread arrived or that a hold ended.
static CHANGED: Condvar = Condvar::new();

/// The place `name` in a thread that works on `of`: the thread waits here while a [`Hold`] exists
/// for it.
pub fn point<T>(of: &T, name: &'static str) {
    // A model needs none: Shuttle stops its threads anywhere.
    if cfg!(debug_assertions) && !cfg!(feature = "model") {
        reach(address(of), name);
    }
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

fn reach(of: usize, name: &'static str) {
    let mut state = STATE.lock();
    let found = state.held.iter_mut().find(|h| (h.of, h.name) == (of, name));
    let Some(held) = found else { return };
    held.reached += 1;
    let id = held.id;
    CHANGED.notify_all();
    while state.held.iter().any(|h| h.id == id) {
        CHANGED.wait(&mut state);
    }
}

/// A hold on a place: threads that arrive there wait until it is dropped.
pub struct Hold(u64);

impl Hold {
    /// Holds threads of `of` that arrive at the place `name` from here on.
    pub fn at<T>(of: &T, name: &'static str) -> Hold {
        let mut state = STATE.lock();
        state.ids += 1;
        let id = state.ids;
        state.held.push(Held {
            of: address(of),
            name,
            reached: 0,
            id,
        });
        Hold(id)
    }

    /// Waits until a thread has arrived.
    ///
    /// # Panics
    /// If none arrives in time: the waiting test has failed.
    pub fn await_one(&self) {
        let mut state = STATE.lock();
        let came = |state: &State| {
            let mine = state.held.iter().find(|h| h.id == self.0);
            mine.is_some_and(|h| h.reached > 0)
        };
        while !came(&state) {
            let late = CHANGED.wait_for(&mut state, LONG).timed_out();
            assert!(!late || came(&state), "nobody came");
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        STATE.lock().held.retain(|h| h.id != self.0);
        CHANGED.notify_all();
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_thread_waits_where_it_is_held_and_only_there() {
        let (one, other, passed) = ([1], [2], AtomicBool::new(false));
        let hold = Hold::at(&one, "here");
        point(&other, "here");
        point(&one, "there");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                point(&one, "here");
                passed.store(true, Ordering::SeqCst);
            });
            hold.await_one();
            assert!(!passed.load(Ordering::SeqCst));
            drop(hold);
        });
        assert!(passed.load(Ordering::SeqCst));
        point(&one, "here");
    }
}
