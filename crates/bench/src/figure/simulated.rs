//! Volumes on a simulated SSD, in simulated time.

use std::ops::Range;
use std::thread;

use anyhow::Result;
use parking_lot::Mutex;
use stetfs::low::{BlockDevice, CHECKPOINT_THREAD, MemDevice};
use stetfs_block::{Read, Share, ShareLimits, SharePair, Stats, Write, sharing_of};
use stetfs_flash::{Model, Ssd, took};

use crate::aged;

/// Simulated time of requests, nanoseconds, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub reads: u64,
    pub writes: u64,
    pub shares: u64,
    pub flushes: u64,
    /// The part of it spent by the thread that makes checkpoints.
    pub checkpoints: u64,
}

/// An SSD that reports how its time is spent.
pub(super) struct Watched {
    inner: Ssd,
    spent: Mutex<Spent>,
}

impl Watched {
    /// As [`aged::ssd`].
    pub(super) fn with(volume: &MemDevice, model: Model, aged: bool) -> Result<Watched> {
        Ok(Watched {
            inner: aged::ssd(volume, aged)?.simulated(model),
            spent: Mutex::default(),
        })
    }

    pub(super) fn ssd(&self) -> &Ssd {
        &self.inner
    }

    pub(super) fn spent(&self) -> Spent {
        *self.spent.lock()
    }

    fn count<T>(&self, of: impl FnOnce(&mut Spent) -> &mut u64, work: impl FnOnce() -> T) -> T {
        let done = work();
        let taken = took();
        let mut spent = self.spent.lock();
        *of(&mut spent) += taken;
        if thread::current().name() == Some(CHECKPOINT_THREAD) {
            spent.checkpoints += taken;
        }
        done
    }
}

impl BlockDevice for Watched {
    stetfs_block::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> stetfs_block::Result<()> {
        self.count(|s| &mut s.reads, || self.inner.read_batch(reads))
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> stetfs_block::Result<()> {
        self.count(|s| &mut s.writes, || self.inner.write_batch(writes))
    }

    fn flush(&self) -> stetfs_block::Result<()> {
        self.count(|s| &mut s.flushes, || self.inner.flush())
    }

    fn discard(&self, range: Range<u64>) -> stetfs_block::Result<()> {
        self.inner.discard(range)
    }

    fn zero(&self, range: Range<u64>) -> stetfs_block::Result<()> {
        self.inner.zero(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl Share for Watched {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> stetfs_block::Result<()> {
        self.count(
            |s| &mut s.shares,
            || sharing_of(&self.inner)?.share_batch(pairs),
        )
    }
}
