//! The clock: virtual time in a simulation, the host's elsewhere.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::OnceLock;
use std::time::Duration;

use super::operations;
use super::world::Op;

/// As `std::time::Instant`. Moments of a simulation and of the host do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

/// A simulation's first moment: late enough to subtract from.
const START: Duration = Duration::from_secs(86_400);

impl Instant {
    /// The present moment.
    pub fn now() -> Instant {
        static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();
        operations::point(Op::Other);
        match operations::now() {
            Some(nanos) => Instant(START + Duration::from_nanos(nanos)),
            None => {
                let epoch = *EPOCH.get_or_init(std::time::Instant::now);
                Instant(START + epoch.elapsed())
            }
        }
    }

    /// Nanoseconds of virtual time at this moment.
    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.0.saturating_sub(START).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time from now until this moment; zero if it is past.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_sub(Instant::now().0)
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
