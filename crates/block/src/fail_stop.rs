//! A device that is finished once something that it was to make durable may not be.

use std::collections::BTreeSet;
use std::ops::Range;

use stetfs_sync::plain::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering},
    mended,
};

use crate::unflushed::{Unflushed, Writing};
use crate::{
    BlockDevice, BlockError, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
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
///
/// Reads pass.
pub struct FailStop<D> {
    inner: D,
    unflushed: Unflushed,
    state: Mutex<State>,
    /// An attempt to make something durable has ended.
    ended: Condvar,
    /// As `state.why`, for those that only look.
    failed: AtomicBool,
    /// Deliberate fault: failures are forgiven.
    forgiving: bool,
}

#[derive(Default)]
struct State {
    /// Attempts that began; each has the number it made.
    begun: u64,
    /// Numbers of those that have not ended.
    running: BTreeSet<u64>,
    /// The first failure.
    why: Option<BlockError>,
}

impl State {
    fn check(&self) -> Result<()> {
        self.why.clone().map_or(Ok(()), Err)
    }
}

impl<D: BlockDevice> FailStop<D> {
    /// Around a device in which nothing is in flight.
    pub fn new(inner: D) -> Self {
        FailStop {
            inner,
            unflushed: Unflushed::new(),
            state: Mutex::default(),
            ended: Condvar::new(),
            failed: AtomicBool::new(false),
            forgiving: false,
        }
    }

    /// A canary: one that stops at nothing.
    pub fn forgiving(inner: D) -> Self {
        FailStop {
            forgiving: true,
            ..FailStop::new(inner)
        }
    }

    /// Writes are on their way, if a flush is to find any of them.
    fn writing(&self, writes: &[Write<'_>]) -> Option<Writing<'_>> {
        let volatile = writes.iter().any(|write| !write.fua && !write.is_empty());
        volatile.then(|| self.unflushed.write())
    }

    fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => self.state.lock().check(),
            false => Ok(()),
        }
    }

    /// Runs a request that makes something durable (block.F1, block.F2).
    fn durably(&self, request: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.forgiving {
            return request();
        }
        let mine = {
            let mut s = self.state.lock();
            s.check()?;
            s.begun += 1;
            let mine = s.begun;
            s.running.insert(mine);
            mine
        };
        let result = request();
        let mut s = self.state.lock();
        s.running.remove(&mine);
        if let Err(e) = result
            && s.why.is_none()
        {
            tracing::error!("nothing more is written, for what was may be lost: {e}");
            s.why = Some(e);
            self.failed.store(true, Ordering::Release);
        }
        self.ended.notify_all();
        let beside = s.begun;
        let is_beside = |s: &State| {
            let first = s.running.first();
            first.is_some_and(|first| *first <= beside) && mended("fail-stop.beside")
        };
        while s.why.is_none() && is_beside(&s) {
            self.ended.wait(&mut s);
        }
        s.check()
    }
}

impl<D: BlockDevice> BlockDevice for FailStop<D> {
    crate::shape_of_inner!();

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn is_flushed(&self) -> bool {
        self.unflushed.is_none() && self.check().is_ok()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check()?;
        let _writing = self.unflushed.write();
        self.inner.write(offset, data)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let _writing = self.writing(writes);
        match writes.iter().any(|write| write.fua) {
            true => self.durably(|| self.inner.write_batch(writes)),
            false => {
                self.check()?;
                self.inner.write_batch(writes)
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
        self.check()?;
        let _writing = self.unflushed.write();
        self.inner.discard(range)
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.check()?;
        let _writing = self.unflushed.write();
        self.inner.zero(range)
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
        self.check()?;
        let _writing = self.unflushed.write();
        sharing_of(&self.inner)?.share_batch(pairs)
    }
}
