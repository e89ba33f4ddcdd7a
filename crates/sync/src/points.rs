//! Places in the code where a test stops a thread, so that it need not sleep and hope. Release
//! builds have none.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long a test waits for a thread to come.
const LONG: Duration = Duration::from_secs(30);

/// A place that is held: of one object (its address), by name.
struct Held {
    of: usize,
    name: &'static str,
    /// Threads that came.
    reached: usize,
    /// Which hold it is.
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
/// Somebody came, or a hold ended.
static CHANGED: Condvar = Condvar::new();

/// A thread of `of` comes to the place `name`: it waits while a [`Hold`] says so.
pub fn point<T>(of: &T, name: &'static str) {
    // A model has no need of them: its threads stop anywhere.
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

/// While it lives, threads that come to a place wait there.
pub struct Hold(u64);

impl Hold {
    /// Holds those of `of` that come to the place `name`, from here on.
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

    /// Waits until a thread has come.
    ///
    /// # Panics
    /// None comes: then the test that waits has failed.
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
