//! How fast images go home. Where nobody waits for room a checkpoint goes in steps with pauses, so
//! that syncs wait for one step and not for all of it: their writes queue behind what goes home,
//! and their flushes take it to the medium.

use std::time::Duration;

use stetfs_sync::plain::{
    Condvar, Instant, Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::Inner;
use super::lane::LaneState;
use crate::stats::nanos;

/// What a checkpoint that nobody waits for takes at most, about.
const SPREAD: Duration = Duration::from_secs(4);
/// A step costs a sync about as much again (on a disk, a way there and back), so one is made in the
/// time of so many.
const SYNCS_APART: u32 = 20;
/// Bounds of a pause.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(400);
/// Images of a step, at least.
const STEP: usize = 64;

/// What a flush takes, with the writes of its commit: a mean over the last some, nanoseconds.
#[derive(Default)]
pub(crate) struct SyncTime(AtomicU64);

impl SyncTime {
    pub(crate) fn add(&self, took: Duration) {
        let mean = self.0.load(Ordering::Relaxed);
        let took = nanos(took);
        let mean = if mean == 0 {
            took
        } else {
            mean - mean / 8 + took / 8
        };
        self.0.store(mean, Ordering::Relaxed);
    }

    fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Calls the checkpoint thread, and keeps it from pausing.
#[derive(Default)]
pub(crate) struct CheckpointSignal {
    state: Mutex<SignalState>,
    signal: Condvar,
}

#[derive(Default)]
struct SignalState {
    /// A checkpoint is asked for.
    asked: bool,
    /// One may be due.
    due: bool,
    /// Those that wait for one.
    hurried: usize,
}

/// While it lives no checkpoint pauses.
pub(crate) struct Hurry<'a>(&'a CheckpointSignal);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.state.lock().hurried -= 1;
    }
}

impl CheckpointSignal {
    /// Asks for a checkpoint now.
    pub(crate) fn ask(&self) {
        self.state.lock().asked = true;
        self.signal.notify_all();
    }

    /// Has the thread look whether one is due.
    pub(crate) fn look(&self) {
        if !std::mem::replace(&mut self.state.lock().due, true) {
            self.signal.notify_all();
        }
    }

    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.state.lock().hurried += 1;
        self.signal.notify_all();
        Hurry(self)
    }

    /// Waits until a checkpoint is asked for or may be due, at most `timeout`; whether one is asked
    /// for.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.asked && !state.due {
            self.signal.wait_for(&mut state, timeout);
        }
        state.due = false;
        std::mem::take(&mut state.asked)
    }

    fn is_urgent(&self) -> bool {
        let state = self.state.lock();
        state.asked || state.hurried > 0
    }

    /// Waits, unless somebody waits for the checkpoint.
    pub(super) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.asked && state.hurried == 0 {
            if self.signal.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

/// A checkpoint that takes its time.
pub(crate) struct Spread {
    /// What was free when it began: log blocks of each lane, then blocks of memory.
    room: Vec<u64>,
}

/// Before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub time: Duration,
    /// Images to send after it.
    pub images: usize,
}

impl Pause {
    /// Of a checkpoint of so many images, on a device that takes so long for a sync.
    fn between(sync: Duration, images: usize) -> Pause {
        let time = (sync * SYNCS_APART).clamp(SHORTEST, LONGEST);
        let steps = SPREAD.as_nanos() / time.as_nanos();
        Pause {
            time,
            images: images.div_ceil(steps as usize).max(STEP),
        }
    }
}

impl Spread {
    pub(super) fn begin(inner: &Inner) -> Spread {
        Spread { room: room(inner) }
    }

    /// How to go on when `done` images of `all` were sent; none: as fast as it goes, for somebody
    /// waits, or room is used up faster than this makes some.
    pub(super) fn pause(&self, inner: &Inner, done: usize, all: usize) -> Option<Pause> {
        if inner.checkpoint_signal.is_urgent()
            || self.is_late(&room(inner), done as u64, all as u64)
        {
            return None;
        }
        Some(Pause::between(inner.sync_time.mean(), all))
    }

    /// It is to be ready when half of what was free is gone; an eighth of the work may be late.
    fn is_late(&self, now: &[u64], done: u64, all: u64) -> bool {
        let allowed = done + all / 8;
        let mut rooms = self.room.iter().zip(now);
        rooms.any(|(then, now)| then.saturating_sub(*now) * 2 * all > allowed * then)
    }
}

fn room(inner: &Inner) -> Vec<u64> {
    let pinned = inner.pinned.load(Ordering::Relaxed);
    let memory = inner.pinned_limit().saturating_sub(pinned);
    let lanes = inner.lanes.iter().map(LaneState::room);
    lanes.chain([memory]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_far_apart_as_syncs_are_dear() {
        let between = |micros, images| {
            let pause = Pause::between(Duration::from_micros(micros), images);
            (pause.time.as_millis(), pause.images)
        };
        assert_eq!(between(0, 1000), (2, 64), "memory");
        assert_eq!(between(200, 24_000), (4, 64), "a file");
        assert_eq!(between(1000, 24_000), (20, 120), "an SSD");
        assert_eq!(between(10_000, 24_000), (200, 1200), "a disk");
        assert_eq!(between(1_000_000, 24_000), (400, 2400), "a stick");
    }

    #[test]
    fn it_keeps_up_with_what_is_used() {
        let spread = Spread {
            room: vec![1000, 4000],
        };
        assert!(!spread.is_late(&[1000, 4000], 0, 800));
        assert!(!spread.is_late(&[940, 4000], 0, 800), "an eighth");
        assert!(spread.is_late(&[900, 4000], 0, 800), "of the log");
        assert!(spread.is_late(&[1000, 3000], 0, 800), "of memory");
        assert!(!spread.is_late(&[750, 3000], 400, 800));
        assert!(spread.is_late(&[400, 4000], 800, 800));
        assert!(!spread.is_late(&[1200, 5000], 0, 800), "room was made");
        assert!(!Spread { room: vec![0] }.is_late(&[0], 0, 800));
    }

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
