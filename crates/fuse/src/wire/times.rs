//! Durations of requests, from their arrival in a thread to the answer, over all connections of
//! this process (a server has one).

use std::time::Instant;

use stetfs::low::{Histogram, Latency};

use crate::wire::abi::op;

/// The timed kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    /// fsync, fdatasync, syncfs, and the sync of a write with O_SYNC or O_DSYNC.
    Sync,
    /// Writes that reach the server.
    Write,
    /// Reads that reach the server.
    Read,
}

/// The histograms, in the order of [`Timed`].
static TIMES: [Histogram; 3] = [const { Histogram::new() }; 3];

impl Timed {
    /// The kind of a request, if it is timed.
    pub(crate) fn of(opcode: u32) -> Option<Timed> {
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

/// Measures the time from its creation until it is dropped.
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

/// The durations of this process's requests.
#[derive(Clone, Debug)]
pub struct RequestLatency {
    /// fsync, fdatasync, syncfs, O_SYNC.
    pub sync: Latency,
    /// Writes.
    pub write: Latency,
    /// Reads.
    pub read: Latency,
}

/// The durations of requests since the process began.
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
