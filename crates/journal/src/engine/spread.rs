//! The pace of a checkpoint. If no caller waits for room it goes in steps with pauses, so that a
//! sync waits for one step and not for all of it: the writes of a sync queue behind those of the
//! checkpoint, and its flush takes them to the medium.

use std::time::Duration;

use super::log_space::LogSpace;

/// The time that a checkpoint takes at most, roughly, if no caller waits for it.
const SPREAD: Duration = Duration::from_secs(4);
/// The time between two steps, in syncs. A step about doubles the time of a sync that meets it (on
/// a disk: a seek there and back), so a step is made only in the time of so many.
const SYNCS_APART: u32 = 20;
/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(400);
/// The fewest images of a step.
const STEP: usize = 64;

/// A checkpoint that goes in steps with pauses.
pub(crate) struct Spread {
    /// The room at its start: free log blocks of each lane, then free blocks of memory.
    room: Vec<u64>,
}

/// A pause before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub time: Duration,
    /// The number of images to send after it.
    pub images: usize,
}

impl Pause {
    /// The pause in a checkpoint of so many images, on a device where a sync takes `sync`.
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
    pub(super) fn begin(space: &LogSpace) -> Spread {
        Spread {
            room: space.rooms(),
        }
    }

    /// The pause before the next step when `done` images of `all` were sent, on a device where a
    /// sync takes `sync`. None if the checkpoint has to go on as fast as it can: a caller waits, or
    /// room is used up faster than the checkpoint makes it.
    pub(super) fn pause(
        &self,
        space: &LogSpace,
        sync: Duration,
        done: usize,
        all: usize,
    ) -> Option<Pause> {
        let is_late = || self.is_late(&space.rooms(), done as u64, all as u64);
        if space.signal.is_urgent() || is_late() {
            return None;
        }
        Some(Pause::between(sync, all))
    }

    /// Whether the checkpoint is behind. It is to end by the time half of the room at its start is
    /// used up, and may be behind by an eighth of its work.
    fn is_late(&self, now: &[u64], done: u64, all: u64) -> bool {
        let allowed = done + all / 8;
        let mut rooms = self.room.iter().zip(now);
        rooms.any(|(then, now)| then.saturating_sub(*now) * 2 * all > allowed * then)
    }
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
}
