//! The fault injector: a device that fails requests as programmed.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{Action, Fault};
use super::verdict::{State, Verdict, refused};
use crate::device::write_zeros;
use crate::{
    BlockDevice, Op, Read, Result, Share, ShareLimits, SharePair, Stats, Write, sharing_of,
};

/// Wraps a device, and fails requests as programmed with [`add`](FaultInjector::add) or
/// [`power_off_after`](FaultInjector::power_off_after).
#[derive(Debug)]
pub struct FaultInjector<D> {
    inner: D,
    state: Mutex<State>,
}

impl<D: BlockDevice> FaultInjector<D> {
    /// A wrapper that passes everything to `inner`.
    pub fn new(inner: D) -> Self {
        FaultInjector {
            inner,
            state: Mutex::new(State::default()),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device below, without its injector.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Arms a fault. If several match a request, the one added first hits it.
    pub fn add(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Replaces the armed faults, with no request in between.
    pub fn set(&self, faults: Vec<Fault>) {
        self.state.lock().faults = faults;
    }

    /// Disarms all faults. Does not restore the power.
    pub fn clear(&self) {
        self.state.lock().faults.clear();
    }

    /// Cuts the power after `n` more writes: every later request fails with EIO and does not reach
    /// the device. In a batch each write counts, in its order; a SHARE batch counts as one.
    pub fn power_off_after(&self, n: u64) {
        self.state.lock().power = Some(n);
    }

    /// Restores the power.
    pub fn power_on(&self) {
        self.state.lock().power = None;
    }

    /// Whether the power is off: the next request, or an earlier one, is refused.
    pub fn is_off(&self) -> bool {
        self.state.lock().dead()
    }

    /// Number of writes requested, with any outcome.
    pub fn writes_seen(&self) -> u64 {
        self.state.lock().seen.writes
    }

    /// Number of reads requested.
    pub fn reads_seen(&self) -> u64 {
        self.state.lock().seen.reads
    }

    /// Number of flushes requested.
    pub fn flushes_seen(&self) -> u64 {
        self.state.lock().seen.flushes
    }

    /// Number of SHARE batches requested.
    pub fn shares_seen(&self) -> u64 {
        self.state.lock().seen.shares
    }

    /// Number of requests hit by a fault.
    pub fn hits(&self) -> u64 {
        self.state.lock().hits
    }
}

impl<D: BlockDevice> BlockDevice for FaultInjector<D> {
    crate::shape_of_inner!();

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.seen.reads += reads.len() as u64;
            if state.faults.is_empty() && !state.dead() {
                drop(state);
                return self.inner.read_batch(reads);
            }
        }
        // One by one: each is judged on its own.
        let mut result = Ok(());
        for read in reads {
            result = result.and(self.read_one(read));
        }
        result
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let mut passed = Vec::new();
        let mut parts = Vec::new();
        let mut result = Ok(());
        {
            let mut state = self.state.lock();
            for write in writes {
                let errno = match state.judge_write(write) {
                    Verdict::Lost => None,
                    Verdict::Failed(errno) => Some(errno),
                    Verdict::Pass => {
                        passed.push(*write);
                        None
                    }
                    Verdict::Parts(some, errno) => {
                        parts.extend(some.into_iter().map(|(at, data)| (at, data, write.fua)));
                        errno
                    }
                };
                if let Some(errno) = errno {
                    result = result.and(Err(refused(Op::Write, write.offset, write.len(), errno)));
                }
            }
        }
        passed.extend(parts.iter().map(|(at, data, fua)| Write {
            fua: *fua,
            ..Write::new(*at, data)
        }));
        let inner = if passed.is_empty() && !writes.is_empty() {
            Ok(())
        } else {
            self.inner.write_batch(&passed)
        };
        result.and(inner)
    }

    fn flush(&self) -> Result<()> {
        let verdict = {
            let mut state = self.state.lock();
            state.seen.flushes += 1;
            state.judge(Op::Flush, 0, 0)
        };
        match verdict {
            Verdict::Failed(errno) => Err(refused(Op::Flush, 0, 0, errno)),
            Verdict::Lost => Ok(()),
            Verdict::Pass | Verdict::Parts(..) => self.inner.flush(),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        let verdict = self.state.lock().judge(Op::Discard, range.start, len);
        match verdict {
            Verdict::Failed(errno) => Err(refused(Op::Discard, range.start, len, errno)),
            Verdict::Lost => Ok(()),
            Verdict::Pass | Verdict::Parts(..) => self.inner.discard(range),
        }
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let quiet = {
            let state = self.state.lock();
            state.faults.is_empty() && state.power.is_none()
        };
        match quiet {
            true => self.inner.zero(range),
            // By writes, so that write faults hit it.
            false => write_zeros(self, range),
        }
    }

    /// A copy of the device below, without faults.
    fn snapshot(&self) -> Option<Arc<dyn BlockDevice>> {
        self.inner.snapshot()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<D: BlockDevice> FaultInjector<D> {
    fn read_one(&self, read: &mut Read<'_>) -> Result<()> {
        let (offset, len) = (read.offset, read.len());
        let mut state = self.state.lock();
        if state.dead() {
            return Err(refused(Op::Read, offset, len, libc::EIO));
        }
        match state.hit(Op::Read, offset, len).map(|f| &mut f.action) {
            Some(Action::Fail(errno)) => Err(refused(Op::Read, offset, len, *errno)),
            Some(Action::Lose) => Ok(()),
            Some(Action::Corrupt(change)) => {
                let mut bytes = vec![0; len as usize];
                self.inner.read(offset, &mut bytes)?;
                change(offset, &mut bytes);
                let mut from = bytes.as_slice();
                for slice in read.data.slices_mut() {
                    let (mine, rest) = from.split_at(slice.len());
                    slice.copy_from_slice(mine);
                    from = rest;
                }
                Ok(())
            }
            // Only writes are torn.
            Some(Action::Tear { .. }) | None => {
                drop(state);
                self.inner.read_batch(std::slice::from_mut(read))
            }
        }
    }
}

impl<D: BlockDevice> Share for FaultInjector<D> {
    fn limits(&self) -> ShareLimits {
        ShareLimits::of(&self.inner)
    }

    fn share_batch(&self, pairs: &[SharePair]) -> Result<()> {
        let unit = self.limits().unit;
        let (arrive, errno) = self.state.lock().judge_share(pairs, unit);
        let lost = arrive.is_empty() && !pairs.is_empty();
        let done = match lost {
            true => Ok(()),
            false => sharing_of(&self.inner)?.share_batch(&arrive),
        };
        match (errno, pairs) {
            (Some(errno), pairs) => {
                let bytes = pairs.iter().map(|p| p.len).sum();
                let first = pairs.first().map_or(0, |p| p.dst);
                Err(refused(Op::Share, first, bytes, errno))
            }
            (None, _) => done,
        }
    }
}
