//! Requests that a device failed: how often, and the first and the last of each kind.

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
    /// When that was known.
    pub at: SystemTime,
    /// The device's name, as [`Watched`] has it.
    pub device: &'static str,
    /// The first byte on that device; a flush has none.
    pub offset: Option<u64>,
    /// Bytes of the request.
    pub len: u64,
    /// The device's answer.
    pub errno: i32,
}

/// What failed of one kind of request. A batch counts once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failed {
    /// How often.
    pub count: u64,
    /// The first one …
    pub first: Option<FailedRequest>,
    /// … and the last one.
    pub last: Option<FailedRequest>,
}

/// What devices failed, by kind. What was refused without being tried is not among it: requests
/// beyond the end, changes of what is opened read-only, shares that the device does not take.
#[derive(Debug, Default)]
pub struct Failures([Mutex<Failed>; Op::ALL.len()]);

impl Failures {
    /// All kinds, and what failed of each.
    pub fn snapshot(&self) -> Vec<(Op, Failed)> {
        let all = Op::ALL.into_iter().zip(&self.0);
        all.map(|(op, failed)| (op, failed.lock().clone()))
            .collect()
    }

    /// Takes note of an error of `device`, which was asked for `asked`.
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

/// A device whose failures are counted. To be below what refuses requests by itself
/// ([`FailStop`](crate::FailStop)).
pub struct Watched<D> {
    inner: D,
    name: &'static str,
    failures: Arc<Failures>,
}

impl<D: BlockDevice> Watched<D> {
    /// Around a device, which is named in `failures`.
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
