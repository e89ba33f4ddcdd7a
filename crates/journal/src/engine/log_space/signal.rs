//! The signal to the checkpoint thread, and that thread's pauses: a checkpoint that no caller waits
//! for pauses between its steps.

use std::time::Duration;

use stetfs_sync::plain::{Condvar, Instant, Mutex};

/// Wakes the checkpoint thread, and ends its pauses.
#[derive(Default)]
pub(in crate::engine) struct CheckpointSignal {
    state: Mutex<SignalState>,
    signal: Condvar,
}

#[derive(Default)]
struct SignalState {
    /// A checkpoint is requested.
    asked: bool,
    /// A checkpoint may be due.
    due: bool,
    /// The number of callers that wait for a checkpoint.
    hurried: usize,
}

/// A guard: while it lives no checkpoint pauses.
pub(in crate::engine) struct Hurry<'a>(&'a CheckpointSignal);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.state.lock().hurried -= 1;
    }
}

impl CheckpointSignal {
    /// Requests a checkpoint now.
    pub(in crate::engine) fn ask(&self) {
        self.state.lock().asked = true;
        self.signal.notify_all();
    }

    /// Has the thread check whether a checkpoint is due.
    pub(in crate::engine) fn look(&self) {
        if !std::mem::replace(&mut self.state.lock().due, true) {
            self.signal.notify_all();
        }
    }

    pub(in crate::engine) fn hurry(&self) -> Hurry<'_> {
        self.state.lock().hurried += 1;
        self.signal.notify_all();
        Hurry(self)
    }

    /// Waits until a checkpoint is requested or may be due, for `timeout` at most. Returns whether
    /// one is requested.
    pub(in crate::engine) fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.asked && !state.due {
            self.signal.wait_for(&mut state, timeout);
        }
        state.due = false;
        std::mem::take(&mut state.asked)
    }

    /// Whether a caller waits for a checkpoint, or requested one.
    pub(in crate::engine) fn is_urgent(&self) -> bool {
        let state = self.state.lock();
        state.asked || state.hurried > 0
    }

    /// Waits for `time`, or until a caller requests the checkpoint or waits for it.
    pub(in crate::engine) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.asked && state.hurried == 0 {
            if self.signal.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_ends_a_pause() {
        let checkpoint_signal = CheckpointSignal::default();
        let long = Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let pausing = scope.spawn(|| checkpoint_signal.pause(long));
            let hurry = checkpoint_signal.hurry();
            assert!(pausing.join().is_ok());
            checkpoint_signal.pause(long);
            drop(hurry);
        });
        assert!(!checkpoint_signal.is_urgent());
        checkpoint_signal.ask();
        checkpoint_signal.pause(long);
        assert!(checkpoint_signal.wait(long), "it is still asked for");
        checkpoint_signal.look();
        checkpoint_signal.pause(Duration::from_millis(1));
        assert!(!checkpoint_signal.wait(long), "nobody waits for it");
        assert!(!checkpoint_signal.is_urgent());
    }
}
