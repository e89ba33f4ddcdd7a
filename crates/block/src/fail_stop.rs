//! Fail-stop: after the first failure to make data durable a device takes no more writes.

use std::ops::Range;

use crate::unflushed::{Unflushed, Writing};
use crate::{
    Attempts, BlockDevice, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};

/// Fail-stop over a device that is not (rule 5 of the crate). A failed flush may drop data written
/// since the last successful one, and the next flush succeeds all the same, as there is nothing
/// left to write. So each caller of a flush must learn of the failures of all others. (PostgreSQL
/// met this in 2018, as the "fsync incident".)
///
/// * **block.F1** Once a request that was to make something durable has failed (a flush, or a write
///   with `fua`), every later change and flush is refused with that error.
/// * **block.F2** A successful flush counts only when every concurrent flush has ended and none has
///   failed: a failing flush may have dropped data of this one.
/// * **block.F3** A flush is left out only if an earlier flush that counts began after all writes
///   without `fua` had ended: it would have no effect. Where the device has FUA, a batch with a
///   flush then goes out with `fua`.
/// * **block.F4** A flush that fails inside another request (a write to a device whose cache is
///   full) is a failed flush: the error says so (`BlockError::is_of_flush`), and the device keeps
///   these flushes and the requested ones in one history ([`Attempts`]).
///
/// Reads pass.
pub struct FailStop<D> {
    inner: D,
    unflushed: Unflushed,
    attempts: Attempts,
    stops: Stops,
}

/// The failures that stop the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    /// Every failure to make something durable.
    All,
    /// Fault for canaries: of concurrent flushes only those that failed before the request ended.
    Earlier,
    /// Fault for canaries: only failures of requested flushes, not of those inside other requests.
    Asked,
    /// Fault for canaries: none.
    Nothing,
}

impl<D: BlockDevice> FailStop<D> {
    /// A wrapper around a device without requests in flight.
    pub fn new(inner: D) -> Self {
        FailStop {
            inner,
            unflushed: Unflushed::new(),
            attempts: Attempts::default(),
            stops: Stops::All,
        }
    }

    /// A canary: a wrapper that stops at nothing.
    pub fn forgiving(inner: D) -> Self {
        FailStop {
            stops: Stops::Nothing,
            ..FailStop::new(inner)
        }
    }

    /// A canary: a wrapper that ignores failed flushes inside other requests (block.F4).
    pub fn forgiving_within(inner: D) -> Self {
        FailStop {
            stops: Stops::Asked,
            ..FailStop::new(inner)
        }
    }

    /// A canary: a wrapper whose flushes do not wait for concurrent ones (block.F2).
    pub fn forgiving_beside(inner: D) -> Self {
        FailStop {
            stops: Stops::Earlier,
            ..FailStop::new(inner)
        }
    }

    /// Marks writes as in flight, if a flush has to cover any of them.
    fn writing(&self, writes: &[Write<'_>]) -> Option<Writing<'_>> {
        let volatile = writes.iter().any(|write| !write.fua && !write.is_empty());
        volatile.then(|| self.unflushed.write())
    }

    fn check(&self) -> Result<()> {
        self.attempts.check()
    }

    /// Runs a request that makes something durable (block.F1, block.F2).
    fn durably(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        match self.stops {
            Stops::Nothing => request(),
            Stops::Earlier => self.attempts.run_alone(request),
            Stops::All | Stops::Asked => self.attempts.run(request),
        }
    }

    /// Notes the result of another request (block.F4).
    fn noted(&self, result: Result<()>) -> Result<()> {
        match self.stops {
            Stops::All | Stops::Earlier => self.attempts.noted(result),
            Stops::Asked | Stops::Nothing => result,
        }
    }

    /// Runs a request that changes content and makes nothing durable.
    fn changing(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check()?;
        let _writing = self.unflushed.write();
        self.noted(request())
    }
}

impl<D: BlockDevice> BlockDevice for FailStop<D> {
    crate::shape_of_inner!();

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.noted(self.inner.read(offset, buf))
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.noted(self.inner.read_batch(reads))
    }

    fn is_flushed(&self) -> bool {
        self.unflushed.is_none() && self.check().is_ok()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.changing(|| self.inner.write(offset, data))
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let _writing = self.writing(writes);
        match writes.iter().any(|write| write.fua) {
            true => self.durably(|| self.inner.write_batch(writes)),
            false => {
                self.check()?;
                self.noted(self.inner.write_batch(writes))
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.check()?;
        self.unflushed.flush(|| self.durably(|| self.inner.flush()))
    }

    fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
        if self.has_fua() && self.is_flushed() {
            let writes: Vec<_> = writes.iter().map(|write| write.fua()).collect();
            return self.write_batch(&writes);
        }
        self.durably(|| {
            let _writing = self.writing(writes);
            self.inner.write_batch(writes)
        })?;
        self.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.changing(|| self.inner.discard(range))
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.changing(|| self.inner.zero(range))
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Share for FailStop<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        self.changing(|| sharing_of(&self.inner)?.share_batch(pairs))
    }
}
