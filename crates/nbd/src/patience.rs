//! Deadlines for a server's answers: a hostile server may be silent, trickle, or stop reading.

use std::io;
use std::time::{Duration, Instant};

/// Time after a deadline in which data that has arrived is still received: this process may have
/// been stopped itself meanwhile.
const GRACE: Duration = Duration::from_secs(10);
/// Bytes of a request that extend its deadline by one second, as a power of two.
const SECOND_SHIFT: u32 = 24;

/// The error of a missed deadline.
#[derive(Debug, thiserror::Error)]
#[error("it did not answer in time")]
struct Overdue;

fn overdue() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Overdue)
}

/// Whether an error is a deadline of this module. The system reports an error of the same kind for
/// an unreachable machine, which means a lost connection.
pub(crate) fn is_overdue(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<Overdue>())
}

/// A deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// `None` never ends.
    due: Option<Instant>,
    /// The time at which it was first found to be over.
    late_since: Option<Instant>,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Deadline {
        Deadline {
            due: Instant::now().checked_add(patience),
            late_since: None,
        }
    }

    /// The deadline of a request of `bytes` bytes.
    pub(crate) fn of_request(patience: Duration, bytes: u32) -> Deadline {
        let more = Duration::from_secs(u64::from(bytes >> SECOND_SHIFT));
        Deadline::after(patience.saturating_add(more))
    }

    /// The remaining time; `None` is unlimited. Zero: data that has arrived may be received, but
    /// there is no waiting.
    ///
    /// # Errors
    /// `Overdue` when the deadline has been over for [`GRACE`].
    pub(crate) fn left(&mut self) -> io::Result<Option<Duration>> {
        let Some(due) = self.due else {
            return Ok(None);
        };
        let now = Instant::now();
        if now >= due && now - *self.late_since.get_or_insert(now) >= GRACE {
            return Err(overdue());
        }
        Ok(Some(due.saturating_duration_since(now)))
    }

    /// Fails when no time is left, for a caller that has nothing to receive.
    pub(crate) fn check_waiting(left: Option<Duration>) -> io::Result<()> {
        match left.is_some_and(|left| left.is_zero()) {
            true => Err(overdue()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_there_is_taken_a_while_longer() {
        let mut never = Deadline::after(Duration::MAX);
        assert_eq!(never.left().unwrap(), None);
        let mut over = Deadline::after(Duration::ZERO);
        assert_eq!(over.left().unwrap(), Some(Duration::ZERO));
        let error = Deadline::check_waiting(over.left().unwrap()).unwrap_err();
        assert!(is_overdue(&error));
        over.late_since = Instant::now().checked_sub(GRACE);
        assert!(is_overdue(&over.left().unwrap_err()));
        let systems = io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error());
        assert_eq!(systems.kind(), io::ErrorKind::TimedOut);
        assert!(!is_overdue(&systems));
        let mut large = Deadline::of_request(Duration::ZERO, 32 << 20);
        assert!(large.left().unwrap().unwrap() > Duration::from_secs(1));
    }
}
