//! Moments of clocks that are not the host's: of models and of simulations, each of which says what
//! time it is.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// As `std::time::Instant`. Moments of different clocks do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The moment so long after the clock's start.
    pub(crate) const fn at(since_start: Duration) -> Instant {
        Instant(since_start)
    }

    /// Time from the clock's start to this moment.
    #[cfg(not(feature = "model"))]
    pub(crate) const fn since_start(self) -> Duration {
        self.0
    }

    /// Time since.
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// Time from an earlier moment to this one; zero if that one is later.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As `duration_since`.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }

    /// As `duration_since`; none if that one is later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// The moment `time` later.
    pub fn checked_add(&self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time).map(Instant)
    }

    /// The moment `time` earlier.
    pub fn checked_sub(&self, time: Duration) -> Option<Instant> {
        self.0.checked_sub(time).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, time: Duration) -> Instant {
        Instant(self.0.saturating_add(time))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, time: Duration) -> Instant {
        Instant(self.0.saturating_sub(time))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, time: Duration) {
        *self = *self - time;
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}
