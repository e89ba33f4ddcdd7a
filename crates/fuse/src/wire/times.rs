//! How long requests took, from when a thread of ours has one to its answer: of all connections of
//! this process, of which a server has one.

use std::time::Instant;

use stetfs::low::{Histogram, Latency};

use super::abi::op;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// fsync, fdatasync, syncfs, and what a write does for O_SYNC and O_DSYNC.
    Sync,
    /// Writes that reach us.
    Write,
    /// Reads that reach us.
    Read,
}

/// In the order of [`Timed`].
static TIMES: [Histogram; 3] = [const { Histogram::new() }; 3];

impl Timed {
    /// What a request is timed as, if it is.
    pub(super) fn of(opcode: u32) -> Option<Timed> {
        match opcode {
            op::READ => Some(Timed::Read),
            op::WRITE => Some(Timed::Write),
            op::FSYNC | op::FSYNCDIR | op::SYNCFS => Some(Timed::Sync),
            _ => None,
        }
    }

    fn histogram(self) -> &'static Histogram {
        let [sync, write, read] = &TIMES;
        match self {
            Timed::Sync => sync,
            Timed::Write => write,
            Timed::Read => read,
        }
    }
}

/// Runs from when it is made to when it is dropped.
pub(crate) struct Timer {
    what: Timed,
    begun: Instant,
}

impl Timer {
    pub(crate) fn start(what: Timed) -> Timer {
        Timer {
            what,
            begun: Instant::now(),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.what.histogram().add(self.begun.elapsed());
    }
}

/// How long requests of this process took.
#[derive(Clone, Debug)]
pub struct RequestLatency {
    /// fsync, fdatasync, syncfs, O_SYNC.
    pub sync: Latency,
    /// Writes.
    pub write: Latency,
    /// Reads.
    pub read: Latency,
}

/// How long requests took since the process began.
pub fn request_latency() -> RequestLatency {
    let of = |what: Timed| what.histogram().snapshot();
    RequestLatency {
        sync: of(Timed::Sync),
        write: of(Timed::Write),
        read: of(Timed::Read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_of_every_kind_are_syncs() {
        for opcode in [op::FSYNC, op::FSYNCDIR, op::SYNCFS] {
            assert_eq!(Timed::of(opcode), Some(Timed::Sync));
        }
        assert_eq!(Timed::of(op::READ), Some(Timed::Read));
        assert_eq!(Timed::of(op::WRITE), Some(Timed::Write));
        assert_eq!(Timed::of(op::LOOKUP), None);
    }
}
