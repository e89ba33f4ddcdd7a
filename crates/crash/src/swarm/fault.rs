//! The failing device of a run: the requests that it refuses, from a place on that the seed draws.
//!
//! Each run with a fault has it in its last mount, for nobody knows exactly what such a mount
//! leaves. What must hold of it: docs/crash.md, "Devices that fail".

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stetfs::low::{BlockDevice, DataMode, FsError, MemDevice};
use stetfs_block::{Fault, FaultInjector, Op, Read, Recorder, Result, Share, Stats, Write};

use super::dimension::OF_SERVERS;
use super::plan::Plan;

/// The device of a run: memory, requests to it that fail, and the record above.
pub(super) type Device = Recorder<FaultInjector<MemDevice>>;

/// The request that is the first to fail is one of the first 2, 4, … 2^N of its kind.
const FLUSHES: u32 = 6;
const INSIDE: u32 = 3;
const WRITES: u32 = 9;
const READS: u32 = 7;
const REQUESTS: u32 = 7;
/// Blocks of a range that fails, at most.
const RANGE: u64 = 16;

/// The fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing<'p> {
    name: &'p str,
    seed: u64,
    block: u64,
}

impl Failing<'_> {
    /// That of a plan, if it has one.
    pub(super) fn of(plan: &Plan) -> Option<Failing<'_>> {
        (!plan.is("fault", "none")).then(|| Failing {
            name: plan.get("fault"),
            seed: plan.seed ^ 0xfa17,
            block: plan.number("block"),
        })
    }

    /// What a device has it do.
    pub(super) fn arm(self, device: &FaultInjector<MemDevice>) {
        let within = |bits| self.within(bits);
        let fault = match self.name {
            "flush-once" => fail(Op::Flush).after(within(FLUSHES)).once(),
            "flush-on" => fail(Op::Flush).after(within(FLUSHES)),
            "write-once" => fail(Op::Write).after(within(WRITES)).once(),
            "write-on" => fail(Op::Write).after(within(WRITES)),
            "write-range" => fail(Op::Write).when(self.range_of(within(WRITES))),
            "read-once" => fail(Op::Read).after(within(READS)).once(),
            "read-range" => fail(Op::Read).when(self.range_of(within(READS))),
            _ => return,
        };
        if self.name == "write-on" {
            // Nothing else reaches it, either.
            for op in [Op::Share, Op::Discard] {
                device.add(fail(op).after(within(WRITES)));
            }
        }
        device.add(fault);
    }

    /// The number of the first request that fails, counted from 0.
    fn within(self, bits: u32) -> u64 {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let bits = rng.u32(1..=bits);
        rng.u64(0..1 << bits)
    }

    /// Some blocks from that of request number `n` on, from this request on.
    fn range_of(self, n: u64) -> impl FnMut(u64, u64) -> bool + Send + 'static {
        let len = fastrand::Rng::with_seed(!self.seed).u64(1..=RANGE) * self.block;
        let (mut left, mut range, block) = (n, None::<Range<u64>>, self.block);
        move |offset, bytes| {
            if range.is_none() {
                match left.checked_sub(1) {
                    Some(rest) => left = rest,
                    None => {
                        let start = offset / block * block;
                        range = Some(start..start + len);
                    }
                }
            }
            let hits = |r: &Range<u64>| offset < r.end && offset + bytes > r.start;
            range.as_ref().is_some_and(hits)
        }
    }

    /// The device as the volume gets it, on the way `above` to `device`.
    pub(super) fn above(
        self,
        above: Arc<dyn BlockDevice>,
        device: &Arc<Device>,
    ) -> Arc<dyn BlockDevice> {
        match self.name {
            "flush-inside" => Arc::new(SmallCache::of(above, device, self)),
            _ => above,
        }
    }

    /// Whether it is the server's.
    pub(super) fn is_of_server(self) -> bool {
        OF_SERVERS.contains(&self.name)
    }

    /// The request at which the server dies, counted from 1.
    pub(super) fn request(self) -> u64 {
        self.within(REQUESTS) + 1
    }

    /// Whether the server does not come back.
    pub(super) fn is_for_good(self) -> bool {
        self.name == "dies"
    }

    /// Whether nobody may notice it.
    pub(super) fn is_hidden(self) -> bool {
        matches!(self.name, "forgetful" | "careless")
    }

    /// Whether what the server forgot is not written again.
    pub(super) fn is_careless(self) -> bool {
        self.name == "careless"
    }

    /// Whether what was written, and acknowledged by the device, may be lost since: no volume is
    /// closed with success after that.
    pub(super) fn ends_all(self) -> bool {
        self.name.starts_with("flush")
    }

    /// Whether it is reads that fail, which lose nothing.
    pub(super) fn is_of_reads(self) -> bool {
        self.name.starts_with("read")
    }

    /// Whether file data may be lost, which is told once (decision 15), while the rest goes on.
    pub(super) fn loses(self, data: DataMode) -> bool {
        self.name.starts_with("write") && data != DataMode::Journal
    }
}

fn fail(op: Op) -> Fault {
    Fault::fail(op, libc::EIO)
}

/// Whether an error says that the device failed, or that the volume is read-only since it did.
pub(super) fn is_of_device(e: &FsError) -> bool {
    matches!(e.errno(), libc::EIO | libc::EROFS)
}

/// Writes that a device with a small cache takes before it flushes by itself, in blocks.
const CACHE: u64 = 8;

/// A device that flushes inside a write which finds its cache full, and fails as that flush does
/// (block.F4), which one of them does.
struct SmallCache {
    inner: Arc<dyn BlockDevice>,
    device: Arc<Device>,
    bytes: u64,
    unflushed: AtomicU64,
    /// Flushes inside writes until one fails.
    left: AtomicU64,
}

impl SmallCache {
    fn of(inner: Arc<dyn BlockDevice>, device: &Arc<Device>, failing: Failing<'_>) -> SmallCache {
        SmallCache {
            inner,
            device: Arc::clone(device),
            bytes: CACHE * failing.block,
            unflushed: AtomicU64::new(0),
            left: AtomicU64::new(failing.within(INSIDE)),
        }
    }

    fn flush_inside(&self) -> Result<()> {
        if self.left.fetch_sub(1, Relaxed) == 0 {
            self.device.inner().add(fail(Op::Flush).once());
        }
        self.flush()
    }
}

impl fmt::Debug for SmallCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmallCache").finish_non_exhaustive()
    }
}

impl BlockDevice for SmallCache {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn has_fua(&self) -> bool {
        self.inner.has_fua()
    }

    fn share(&self) -> Option<&dyn Share> {
        self.inner.share()
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> Result<()> {
        let volatile = writes.iter().filter(|w| !w.fua);
        let bytes: u64 = volatile.map(Write::len).sum();
        if bytes > 0 && self.unflushed.fetch_add(bytes, Relaxed) + bytes > self.bytes {
            self.flush_inside()?;
            self.unflushed.fetch_add(bytes, Relaxed);
        }
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> Result<()> {
        self.unflushed.store(0, Relaxed);
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.inner.discard(range)
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        self.inner.zero(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
