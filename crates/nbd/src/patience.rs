//! Deadlines of what a server is waited for: a hostile one may be silent, trickle, or stop reading.

use std::io;
use std::time::{Duration, Instant};

/// After a deadline: how long what is there already is still taken. This process may have been
/// stopped itself meanwhile.
const GRACE: Duration = Duration::from_secs(10);
/// Bytes of a request that give it a second more, as a power of two.
const SECOND_SHIFT: u32 = 24;

/// Something that took too long.
#[derive(Debug, thiserror::Error)]
#[error("it did not answer in time")]
struct Overdue;

fn overdue() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Overdue)
}

/// Whether an error is a deadline of ours. The system has an error of the same kind, for machines
/// that say nothing: a connection that is lost.
pub(crate) fn is_overdue(e: &io::Error) -> bool {
    e.get_ref().is_some_and(|inner| inner.is::<Overdue>())
}

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// `None`: never.
    due: Option<Instant>,
    /// Since when it is known to be over.
    late_since: Option<Instant>,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Deadline {
        Deadline {
            due: Instant::now().checked_add(patience),
            late_since: None,
        }
    }

    /// For a request of so many bytes.
    pub(crate) fn of_request(patience: Duration, bytes: u32) -> Deadline {
        let more = Duration::from_secs(u64::from(bytes >> SECOND_SHIFT));
        Deadline::after(patience.saturating_add(more))
    }

    /// How long may still be waited; `None` for ever. Zero: what is there may be taken, but is not
    /// waited for.
    ///
    /// # Errors
    /// It has been over for a while.
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

    /// An error, for who has nothing to take and may wait no longer.
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
