//! The decision whether a commit waits for the callers that were answered last. Programs that sync
//! in a loop come again soon, and one flush then serves all of them (jbd2: `j_average_commit_time`,
//! which it uses for handles of O_SYNC and not for fsync).
//!
//! It learns which part of the callers comes again within half the time of a commit. Waiting pays
//! if most of them do, and costs at most half a commit if they do not.

use std::time::Duration;

use stetfs_sync::plain::Instant;

/// The longest wait.
const LONGEST: Duration = Duration::from_millis(15);
/// The shortest wait: sleeping and being woken takes as long.
const SHORTEST: Duration = Duration::from_micros(20);
/// The unit of [`Gather::again`]: it counts in 1/256 of the callers.
const WHOLE: usize = 256;

/// The callers answered last, and how many have come since.
#[derive(Debug)]
pub(super) struct Gather {
    /// The time of the last answers, and their number.
    answered: Option<(Instant, usize)>,
    /// The number of callers that came since, within half the time of a commit.
    came: usize,
    /// The part of the callers that comes again so soon: a mean over the last commits, of
    /// [`WHOLE`].
    again: usize,
    /// The mean time of a commit, over the last ones.
    takes: Duration,
}

impl Default for Gather {
    fn default() -> Self {
        Gather {
            answered: None,
            came: 0,
            again: WHOLE / 2,
            takes: Duration::ZERO,
        }
    }
}

impl Gather {
    /// Notes that `count` callers were answered at `now`, by work that took `took`.
    pub(super) fn answered(&mut self, count: usize, took: Duration, now: Instant) {
        if count == 0 {
            return;
        }
        if let Some((_, before)) = self.answered {
            let part = self.came.min(before) * WHOLE / before;
            self.again = (self.again * 3 + part) / 4;
        }
        self.takes = match self.takes.is_zero() {
            true => took,
            false => (self.takes * 7 + took) / 8,
        };
        self.answered = Some((now, count));
        self.came = 0;
    }

    /// Notes that a caller came.
    pub(super) fn comes(&mut self, now: Instant) {
        if self.until().is_some_and(|until| now <= until) {
            self.came += 1;
        }
    }

    /// The time until which to wait for missing callers; `None` if there is no reason to wait.
    pub(super) fn wait_until(&self, now: Instant) -> Option<Instant> {
        let until = self.until().filter(|until| *until > now)?;
        let (_, count) = self.answered?;
        let expected = (count * self.again + WHOLE / 2) / WHOLE;
        (self.came < expected).then_some(until)
    }

    /// The time from which callers that have not come again count as late.
    fn until(&self) -> Option<Instant> {
        let half = (self.takes / 2).min(LONGEST);
        let (answered, _) = self.answered.filter(|_| half >= SHORTEST)?;
        Some(answered + half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_millis(1);

    /// Runs commits that answer `count` callers each, of which `come` are back after a tenth of a
    /// commit.
    fn rounds(gather: &mut Gather, count: usize, come: usize, rounds: usize) -> Instant {
        let mut now = Instant::now();
        for _ in 0..rounds {
            gather.answered(count, COMMIT, now);
            now += COMMIT / 10;
            (0..come).for_each(|_| gather.comes(now));
            now += COMMIT * 2;
        }
        gather.answered(count, COMMIT, now);
        now
    }

    #[test]
    fn who_comes_again_is_waited_for() {
        let mut gather = Gather::default();
        let now = rounds(&mut gather, 2, 2, 8);
        assert_eq!(gather.wait_until(now), Some(now + COMMIT / 2));
        gather.comes(now);
        assert_eq!(gather.wait_until(now), Some(now + COMMIT / 2), "the other");
        gather.comes(now);
        assert_eq!(gather.wait_until(now), None, "all are here");
    }

    #[test]
    fn nobody_waits_for_long() {
        let mut gather = Gather::default();
        let now = rounds(&mut gather, 2, 2, 8);
        assert_eq!(gather.wait_until(now + COMMIT / 2), None);
        gather.answered(2, Duration::from_secs(100), now);
        assert_eq!(gather.wait_until(now), Some(now + LONGEST));
        let mut quick = Gather::default();
        quick.answered(2, SHORTEST, now);
        assert_eq!(quick.wait_until(now), None, "not for nothing");
        assert_eq!(Gather::default().wait_until(now), None);
    }

    #[test]
    fn who_stays_away_is_not_waited_for() {
        let mut gather = Gather::default();
        let now = rounds(&mut gather, 2, 0, 8);
        assert_eq!(gather.wait_until(now), None);
        let now = rounds(&mut gather, 8, 4, 8);
        (0..3).for_each(|_| gather.comes(now));
        assert!(gather.wait_until(now).is_some());
        gather.comes(now);
        assert_eq!(gather.wait_until(now), None, "half of them is usual");
    }

    #[test]
    fn one_alone_never_waits() {
        let mut gather = Gather::default();
        let now = rounds(&mut gather, 1, 1, 8);
        gather.comes(now);
        assert_eq!(gather.wait_until(now), None);
    }
}
