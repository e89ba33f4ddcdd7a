//! Statistics of failed requests: the count, and the first and the last of each kind.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::{
    BlockDevice, BlockError, Op, Read, Result, Share, ShareLimits, SharePair, Stats, Write,
    sharing_of,
};

/// A request that a device failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    /// Time of the failure.
    pub at: SystemTime,
    /// The device's name, as given to [`Watched`].
    pub device: &'static str,
    /// First byte on that device; `None` for a flush.
    pub offset: Option<u64>,
    /// Length in bytes.
    pub len: u64,
    /// The device's errno.
    pub errno: i32,
}

/// The failed requests of one kind. A batch counts once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failed {
    /// Number of failures.
    pub count: u64,
    /// The first failure.
    pub first: Option<FailedRequest>,
    /// The last failure.
    pub last: Option<FailedRequest>,
}

/// The failed requests of some devices, by kind. Requests that were refused untried are not
/// counted: those beyond the end, changes on a read-only device, shares beyond the device's limits.
#[derive(Debug, Default)]
pub struct Failures([Mutex<Failed>; Op::ALL.len()]);

impl Failures {
    /// A copy of all kinds and their failures.
    pub fn snapshot(&self) -> Vec<(Op, Failed)> {
        let all = Op::ALL.into_iter().zip(&self.0);
        all.map(|(op, failed)| (op, failed.lock().clone()))
            .collect()
    }

    /// Notes an error of `device` in a request of kind `asked`.
    fn note(&self, device: &'static str, asked: Op, error: &BlockError) {
        let Some((op, offset, len)) = error.failed(asked) else {
            return;
        };
        let request = FailedRequest {
            at: SystemTime::now(),
            device,
            offset: (op != Op::Flush).then_some(offset),
            len,
            errno: error.errno(),
        };
        let kinds = Op::ALL.into_iter().zip(&self.0);
        for (_, failed) in kinds.filter(|(kind, _)| *kind == op) {
            let mut failed = failed.lock();
            failed.count = failed.count.saturating_add(1);
            failed.first.get_or_insert_with(|| request.clone());
            failed.last = Some(request.clone());
        }
    }
}

/// A device whose failures are counted. It belongs below any layer that refuses requests by itself
/// ([`FailStop`](crate::FailStop)).
pub struct Watched<D> {
    inner: D,
    name: &'static str,
    failures: Arc<Failures>,
}

impl<D: BlockDevice> Watched<D> {
    /// A wrapper around a device, which is called `name` in `failures`.
    pub fn new(inner: D, name: &'static str, failures: Arc<Failures>) -> Self {
        Watched {
            inner,
            name,
            failures,
        }
    }

    fn noted(&self, asked: Op, result: Result<()>) -> Result<()> {
        result.inspect_err(|e| self.failures.note(self.name, asked, e))
    }
}

impl<D: BlockDevice> BlockDevice for Watched<D> {
    crate::shape_of_inner!();

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.noted(Op::Read, self.inner.read(offset, buf))
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.noted(Op::Read, self.inner.read_batch(reads))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.noted(Op::Write, self.inner.write(offset, data))
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        self.noted(Op::Write, self.inner.write_batch(writes))
    }

    fn flush(&self) -> Result<()> {
        self.noted(Op::Flush, self.inner.flush())
    }

    fn write_batch_flush(&self, writes: &[Write<'_>]) -> Result<()> {
        self.noted(Op::Write, self.inner.write_batch_flush(writes))
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.noted(Op::Discard, self.inner.discard(range))
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.noted(Op::Write, self.inner.zero(range))
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> Share for Watched<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let shared = sharing_of(&self.inner)?.share_batch(pairs);
        self.noted(Op::Share, shared)
    }
}
