//! The clock: virtual time in a simulation, the host's elsewhere.

use std::sync::OnceLock;
use std::time::Duration;

use super::operations;
use super::world::Op;
pub use crate::moment::Instant;

/// A simulation's first moment: late enough to subtract from.
const START: Duration = Duration::from_secs(86_400);

impl Instant {
    /// The present moment.
    pub fn now() -> Instant {
        static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();
        operations::point(Op::Other);
        match operations::now() {
            Some(nanos) => Instant::at(START + Duration::from_nanos(nanos)),
            None => {
                let epoch = *EPOCH.get_or_init(std::time::Instant::now);
                Instant::at(START + epoch.elapsed())
            }
        }
    }

    /// Nanoseconds of virtual time at this moment.
    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.since_start().saturating_sub(START).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Time from now until this moment; zero if it is past.
    pub(super) fn left(self) -> Duration {
        self.since_start()
            .saturating_sub(Instant::now().since_start())
    }
}
