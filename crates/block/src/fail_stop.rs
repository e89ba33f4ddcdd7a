//! A device that is finished once something that it was to make durable may not be.

use std::ops::Range;

use crate::unflushed::{Unflushed, Writing};
use crate::{
    Attempts, BlockDevice, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};

/// Fail-stop over a device that is not (rule 5 of the crate's head): a flush that fails may drop
/// what was written since the last good one, and the next flush succeeds all the same, for there is
/// nothing left to write. So whoever flushes must know of the failures of all others. (PostgreSQL
/// met this in 2018, as the "fsync incident".)
///
/// * **block.F1** Once a request that was to make something durable has failed (a flush, or a write
///   with `fua`), every later change and flush is refused with that error.
/// * **block.F2** A flush that succeeded counts only when every one that ran beside it has ended,
///   and none has failed: what a failing one dropped may have been this one's.
/// * **block.F3** A flush is left out only if one that counted began after everything that was
///   written had ended, but for writes with `fua`: it would find nothing. Where the device has FUA,
///   a batch with a flush goes out with it then.
/// * **block.F4** A flush that fails inside another request (a write to a device whose cache is
///   full) is a flush that failed: the error says so (`BlockError::is_of_flush`), and the device
///   keeps such flushes, and those that it is asked for, in one history ([`Attempts`]).
///
/// Reads pass.
pub struct FailStop<D> {
    inner: D,
    unflushed: Unflushed,
    attempts: Attempts,
    stops: Stops,
}

/// The failures that end the use of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stops {
    /// Every failure to make something durable.
    All,
    /// Deliberate fault: not a flush that failed inside another request.
    Asked,
    /// Deliberate fault: nothing.
    Nothing,
}

impl<D: BlockDevice> FailStop<D> {
    /// Around a device in which nothing is in flight.
    pub fn new(inner: D) -> Self {
        FailStop {
            inner,
            unflushed: Unflushed::new(),
            attempts: Attempts::default(),
            stops: Stops::All,
        }
    }

    /// A canary: one that stops at nothing.
    pub fn forgiving(inner: D) -> Self {
        FailStop {
            stops: Stops::Nothing,
            ..FailStop::new(inner)
        }
    }

    /// A canary: one that passes flushes over which fail inside other requests (block.F4).
    pub fn forgiving_within(inner: D) -> Self {
        FailStop {
            stops: Stops::Asked,
            ..FailStop::new(inner)
        }
    }

    /// Writes are on their way, if a flush is to find any of them.
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
            _ => self.attempts.run(request),
        }
    }

    /// Takes note of how another request ended (block.F4).
    fn noted(&self, result: Result<()>) -> Result<()> {
        match self.stops {
            Stops::All => self.attempts.noted(result),
            _ => result,
        }
    }

    /// Runs a request that changes something, and makes nothing durable.
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
