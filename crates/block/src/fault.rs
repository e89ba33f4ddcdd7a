//! A device that fails on command.

use std::fmt;
use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::device::write_zeros;
use crate::{
    BlockDevice, BlockError, Gather, Op, Read, Result, SECTOR, Share, ShareLimits, SharePair,
    Stats, Write, sharing_of,
};

/// Changes bytes that were read, or are about to be written; gets the offset of the first.
type Corrupt = Box<dyn FnMut(u64, &mut [u8]) + Send>;
/// Chooses by offset and length.
type Filter = Box<dyn FnMut(u64, u64) -> bool + Send>;

/// What happens to a request that a [`Fault`] hits.
enum Action {
    Fail(i32),
    Lose,
    Tear { arrives: Filter, errno: Option<i32> },
    Corrupt(Corrupt),
}

/// A fault to come. Made for one kind of request; hits each of those that it matches, from the
/// first on, until told otherwise.
pub struct Fault {
    op: Op,
    skip: u64,
    times: u64,
    within: Option<Range<u64>>,
    filter: Option<Filter>,
    action: Action,
}

impl Fault {
    fn new(op: Op, action: Action) -> Self {
        Fault {
            op,
            skip: 0,
            times: u64::MAX,
            within: None,
            filter: None,
            action,
        }
    }

    /// Requests fail with this errno, and do nothing.
    pub fn fail(op: Op, errno: i32) -> Self {
        Self::new(op, Action::Fail(errno))
    }

    /// Requests succeed but do nothing: a lost write, a flush that the disk only pretends. A lost
    /// read leaves the buffer as it was.
    pub fn lose(op: Op) -> Self {
        Self::new(op, Action::Lose)
    }

    /// Of a write, only those 512-byte sectors arrive for whose (offset, length) `arrives` says so.
    /// Then it fails with `errno`, or claims success.
    pub fn tear(
        arrives: impl FnMut(u64, u64) -> bool + Send + 'static,
        errno: Option<i32>,
    ) -> Self {
        Self::new(
            Op::Write,
            Action::Tear {
                arrives: Box::new(arrives),
                errno,
            },
        )
    }

    /// Of a batch to be shared, only those units arrive for whose (destination, length) `arrives`
    /// says so: what a device that promises no atomicity leaves. Then it fails with `errno`, or
    /// claims success.
    pub fn tear_share(
        arrives: impl FnMut(u64, u64) -> bool + Send + 'static,
        errno: Option<i32>,
    ) -> Self {
        Self::new(
            Op::Share,
            Action::Tear {
                arrives: Box::new(arrives),
                errno,
            },
        )
    }

    /// Reads give, or writes store, bytes that `change` has had its hands on; it gets the offset
    /// of the request and its bytes.
    pub fn corrupt(op: Op, change: impl FnMut(u64, &mut [u8]) + Send + 'static) -> Self {
        Self::new(op, Action::Corrupt(Box::new(change)))
    }

    /// Reads, or writes, that touch byte `at` of the device have it XORed with `mask`.
    pub fn flip(op: Op, at: u64, mask: u8) -> Self {
        let change = move |offset: u64, bytes: &mut [u8]| {
            let place = at.checked_sub(offset).and_then(|i| usize::try_from(i).ok());
            if let Some(byte) = place.and_then(|i| bytes.get_mut(i)) {
                *byte ^= mask;
            }
        };
        Self::corrupt(op, change).within(at..at.saturating_add(1))
    }

    /// Leaves the first `n` matching requests alone.
    pub fn after(self, n: u64) -> Self {
        Fault { skip: n, ..self }
    }

    /// Hits this many requests, then is gone.
    pub fn times(self, n: u64) -> Self {
        Fault { times: n, ..self }
    }

    /// Hits one request: short for `times(1)`.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only requests that touch one of these bytes (flushes touch none, what is shared its
    /// destinations).
    pub fn within(self, bytes: Range<u64>) -> Self {
        Fault {
            within: Some(bytes),
            ..self
        }
    }

    /// Only requests of whose (offset, length) `filter` says so; of a batch to be shared one pair
    /// is enough.
    pub fn when(self, filter: impl FnMut(u64, u64) -> bool + Send + 'static) -> Self {
        Fault {
            filter: Some(Box::new(filter)),
            ..self
        }
    }

    /// True if the request is this fault's to hit, now; counts it.
    fn hits(&mut self, op: Op, places: &[(u64, u64)]) -> bool {
        let (within, filter) = (&self.within, &mut self.filter);
        let mut matches = |(offset, len): (u64, u64)| {
            let inside = |r: &Range<u64>| offset < r.end && offset + len > r.start;
            within.as_ref().is_none_or(inside) && filter.as_mut().is_none_or(|f| f(offset, len))
        };
        if self.op != op || self.times == 0 || !places.iter().any(|place| matches(*place)) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times != u64::MAX {
            self.times -= 1;
        }
        true
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match &self.action {
            Action::Fail(errno) => format!("fail with errno {errno}"),
            Action::Lose => "lose".to_owned(),
            Action::Tear { errno, .. } => format!("tear, errno {errno:?}"),
            Action::Corrupt(_) => "corrupt".to_owned(),
        };
        write!(f, "Fault({}: {action})", self.op)
    }
}

/// Wraps a device, and fails requests as programmed with [`add`](FaultInjector::add) or
/// [`power_off_after`](FaultInjector::power_off_after).
#[derive(Debug)]
pub struct FaultInjector<D> {
    inner: D,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    /// Writes until the power goes; `None`: it stays.
    power: Option<u64>,
    seen: Seen,
    hits: u64,
}

/// Requests that came in, whatever became of them. In a batch each counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    reads: u64,
    writes: u64,
    flushes: u64,
    shares: u64,
}

/// What becomes of a request.
enum Verdict {
    Pass,
    Lost,
    Failed(i32),
    /// These parts of a write arrive (changed or not), then the error if any.
    Parts(Vec<(u64, Vec<u8>)>, Option<i32>),
}

impl State {
    /// The fault that hits this request.
    fn hit(&mut self, op: Op, offset: u64, len: u64) -> Option<&mut Fault> {
        self.hit_any(op, &[(offset, len)])
    }

    /// The fault that hits this request, which touches these places: offset and length of each.
    fn hit_any(&mut self, op: Op, places: &[(u64, u64)]) -> Option<&mut Fault> {
        let fault = self
            .faults
            .iter_mut()
            .find_map(|f| f.hits(op, places).then_some(f))?;
        self.hits += 1;
        Some(fault)
    }

    fn dead(&self) -> bool {
        self.power == Some(0)
    }

    /// What becomes of a flush or discard.
    fn judge(&mut self, op: Op, offset: u64, len: u64) -> Verdict {
        if self.dead() {
            return Verdict::Failed(libc::EIO);
        }
        match self.hit(op, offset, len).map(|f| &f.action) {
            Some(Action::Fail(errno)) => Verdict::Failed(*errno),
            Some(Action::Lose) => Verdict::Lost,
            // Neither has bytes to tear or corrupt.
            Some(Action::Tear { .. } | Action::Corrupt(_)) | None => Verdict::Pass,
        }
    }

    fn judge_write(&mut self, write: &Write<'_>) -> Verdict {
        self.seen.writes += 1;
        if self.dead() {
            return Verdict::Failed(libc::EIO);
        }
        if let Some(left) = &mut self.power {
            *left -= 1;
        }
        let (offset, len) = (write.offset, write.len());
        match self.hit(Op::Write, offset, len).map(|f| &mut f.action) {
            None => Verdict::Pass,
            Some(Action::Fail(errno)) => Verdict::Failed(*errno),
            Some(Action::Lose) => Verdict::Lost,
            Some(Action::Corrupt(change)) => {
                let mut data = write.data.to_vec();
                change(offset, &mut data);
                Verdict::Parts(vec![(offset, data)], None)
            }
            Some(Action::Tear { arrives, errno }) => {
                let mut parts = sectors(offset, &write.data);
                parts.retain(|(at, data)| arrives(*at, data.len() as u64));
                Verdict::Parts(parts, *errno)
            }
        }
    }
}

impl State {
    /// What becomes of a batch to be shared: the pairs that arrive, then the error if any.
    fn judge_share(&mut self, pairs: &[SharePair], unit: u32) -> (Vec<SharePair>, Option<i32>) {
        self.seen.shares += 1;
        if self.dead() {
            return (Vec::new(), Some(libc::EIO));
        }
        if let Some(left) = &mut self.power {
            *left -= 1;
        }
        let places: Vec<_> = pairs.iter().map(|p| (p.dst, p.len)).collect();
        match self.hit_any(Op::Share, &places).map(|f| &mut f.action) {
            Some(Action::Fail(errno)) => (Vec::new(), Some(*errno)),
            Some(Action::Lose) => (Vec::new(), None),
            Some(Action::Tear { arrives, errno }) => {
                let units = pairs.iter().flat_map(|pair| pair.units(unit));
                let len = u64::from(unit);
                let units = units.map(|(dst, src)| SharePair { dst, src, len });
                (units.filter(|u| arrives(u.dst, len)).collect(), *errno)
            }
            // It has no bytes to corrupt.
            Some(Action::Corrupt(_)) | None => (pairs.to_vec(), None),
        }
    }
}

/// Cuts a write at multiples of 512.
fn sectors(offset: u64, data: &Gather<'_>) -> Vec<(u64, Vec<u8>)> {
    let bytes = data.to_vec();
    let mut rest = bytes.as_slice();
    let mut at = offset;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let room = u64::from(SECTOR) - at % u64::from(SECTOR);
        let (part, others) = rest.split_at(rest.len().min(room as usize));
        parts.push((at, part.to_vec()));
        at += part.len() as u64;
        rest = others;
    }
    parts
}

impl<D: BlockDevice> FaultInjector<D> {
    /// Passes everything to `inner` until told otherwise.
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

    /// Arms a fault. Of several that match a request the one added first hits it.
    pub fn add(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Arms these faults instead of those that are armed, with no request in between.
    pub fn set(&self, faults: Vec<Fault>) {
        self.state.lock().faults = faults;
    }

    /// Disarms all faults. Does not bring the power back.
    pub fn clear(&self) {
        self.state.lock().faults.clear();
    }

    /// Lets `n` more writes through (in a batch each counts, in its order; what is shared counts as
    /// one); every request after them fails with EIO, and nothing more reaches the device.
    pub fn power_off_after(&self, n: u64) {
        self.state.lock().power = Some(n);
    }

    /// Brings the power back.
    pub fn power_on(&self) {
        self.state.lock().power = None;
    }

    /// True once a request was or would be refused for lack of power.
    pub fn is_off(&self) -> bool {
        self.state.lock().dead()
    }

    /// Writes that were asked for, whatever became of them.
    pub fn writes_seen(&self) -> u64 {
        self.state.lock().seen.writes
    }

    /// Reads that were asked for.
    pub fn reads_seen(&self) -> u64 {
        self.state.lock().seen.reads
    }

    /// Flushes that were asked for.
    pub fn flushes_seen(&self) -> u64 {
        self.state.lock().seen.flushes
    }

    /// Batches to be shared that were asked for.
    pub fn shares_seen(&self) -> u64 {
        self.state.lock().seen.shares
    }

    /// Requests that a fault hit.
    pub fn hits(&self) -> u64 {
        self.state.lock().hits
    }
}

pub(crate) fn refused(op: Op, offset: u64, len: u64, errno: i32) -> BlockError {
    BlockError::io(op, offset, len, io::Error::from_raw_os_error(errno))
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
        // One by one: each has its own fate.
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
            // As the writes that it stands for.
            false => write_zeros(self, range),
        }
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
