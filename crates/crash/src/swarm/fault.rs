//! The failing device of a run: it refuses requests from a random point on.
//!
//! A run with a fault has it in its last mount, because the state that such a mount leaves is not
//! known exactly. docs/crash.md, "Devices that fail", lists the conditions that still must hold.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use stetfs::low::{BlockDevice, DataMode, FsError, MemDevice};
use stetfs_block::{Fault, FaultInjector, Op, Read, Recorder, Result, Share, Stats, Write};

use super::dimension::OF_SERVERS;
use super::plan::Plan;

/// The device of a run: memory, the fault injector above it, and the recorder above that.
pub(super) type Device = Recorder<FaultInjector<MemDevice>>;

/// The first request to fail is one of the first 2, 4, … 2^N requests of its kind; these are N.
const FLUSHES: u32 = 6;
const INSIDE: u32 = 3;
const WRITES: u32 = 9;
const READS: u32 = 7;
const REQUESTS: u32 = 7;
/// Most writes that fail while the host is full.
const PAUSE: u64 = 20;
/// Bytes of a piece of an image for which its host has blocks or has none.
const PIECE: u64 = 64 << 10;
/// Most blocks of a range that fails.
const RANGE: u64 = 16;

/// The fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failing<'p> {
    name: &'p str,
    seed: u64,
    block: u64,
}

impl Failing<'_> {
    /// The fault of a plan, if it has one.
    pub(super) fn of(plan: &Plan) -> Option<Failing<'_>> {
        (!plan.is("fault", "none")).then(|| Failing {
            name: plan.get("fault"),
            seed: plan.seed ^ 0xfa17,
            block: plan.number("block"),
        })
    }

    /// Arms the fault in a device.
    pub(super) fn arm(self, device: &FaultInjector<MemDevice>) {
        let within = |bits| self.within(bits);
        let fault = match self.name {
            "flush-once" => fail(Op::Flush).after(within(FLUSHES)).once(),
            "flush-on" => fail(Op::Flush).after(within(FLUSHES)),
            "write-once" => fail(Op::Write).after(within(WRITES)).once(),
            "write-on" => fail(Op::Write).after(within(WRITES)),
            "write-range" => fail(Op::Write).when(self.range_of(within(WRITES))),
            "full-for-now" => full(self.holes_of(device.inner())).times(self.pause()),
            "full-on" => full(self.holes_of(device.inner())),
            "read-once" => fail(Op::Read).after(within(READS)).once(),
            "read-range" => fail(Op::Read).when(self.range_of(within(READS))),
            _ => return,
        };
        if self.name == "write-on" {
            // Shares and discards that reach the device fail, too.
            for op in [Op::Share, Op::Discard] {
                device.add(fail(op).after(within(WRITES)));
            }
        }
        device.add(fault);
    }

    /// The number of the first request that fails, counted from 0; below 2^`bits`.
    fn within(self, bits: u32) -> u64 {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let bits = rng.u32(1..=bits);
        rng.u64(0..1 << bits)
    }

    /// A filter for a few blocks at the place of request number `n`, from this request on.
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

    /// A filter for the places for which the full host has no blocks, from some write on.
    fn holes_of(self, image: &MemDevice) -> impl FnMut(u64, u64) -> bool + Send + 'static {
        let pieces = 0..image.size().div_ceil(PIECE);
        let is_hole = |piece: &u64| {
            let mut bytes = vec![0; PIECE.min(image.size() - piece * PIECE) as usize];
            image.read(piece * PIECE, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
        };
        let mut holes: HashSet<u64> = pieces.filter(is_hole).collect();
        let mut left = self.within(WRITES);
        move |offset, bytes| {
            let mut touched = offset / PIECE..=(offset + bytes.max(1) - 1) / PIECE;
            if left == 0 {
                return touched.any(|piece| holes.contains(&piece));
            }
            left -= 1;
            touched.for_each(|piece| {
                holes.remove(&piece);
            });
            false
        }
    }

    /// Number of writes that fail until the host has space again.
    fn pause(self) -> u64 {
        fastrand::Rng::with_seed(!self.seed).u64(1..=PAUSE)
    }

    /// The device for the volume, made of `above`, the way to `device`.
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

    /// Whether it is a fault of the server.
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

    /// Whether the volume must not notice the fault.
    pub(super) fn is_hidden(self) -> bool {
        matches!(self.name, "forgetful" | "careless")
    }

    /// Whether the client does not rewrite what the server forgot.
    pub(super) fn is_careless(self) -> bool {
        self.name == "careless"
    }

    /// Whether acknowledged writes may be lost: after that no volume may be closed with success.
    pub(super) fn ends_all(self) -> bool {
        self.name.starts_with("flush")
    }

    /// Whether only reads fail; such a fault loses nothing.
    pub(super) fn is_of_reads(self) -> bool {
        self.name.starts_with("read")
    }

    /// Whether the host is full.
    pub(super) fn is_full(self) -> bool {
        self.name.starts_with("full")
    }

    /// Whether the fault explains an error.
    pub(super) fn explains(self, e: &FsError) -> bool {
        is_of_device(e, self.is_full())
    }

    /// Whether file data may be lost, which is reported once (decision 15), while the volume goes
    /// on.
    pub(super) fn loses(self, data: DataMode) -> bool {
        (self.name.starts_with("write") || self.is_full()) && data != DataMode::Journal
    }
}

fn fail(op: Op) -> Fault {
    Fault::fail(op, libc::EIO)
}

/// A fault of writes to places at which the image cannot grow.
fn full(is_hole: impl FnMut(u64, u64) -> bool + Send + 'static) -> Fault {
    Fault::fail(Op::Write, libc::ENOSPC).when(is_hole)
}

/// Whether an error says that the device failed, that its host was full, or that the volume is
/// therefore read-only.
pub(super) fn is_of_device(e: &FsError, is_full: bool) -> bool {
    matches!(e.errno(), libc::EIO | libc::EROFS) || (is_full && e.errno() == libc::ENOSPC)
}

/// Blocks that a device with a small cache takes before it flushes by itself.
const CACHE: u64 = 8;

/// A device that flushes inside a write when its cache is full. One of these flushes fails, and so
/// does its write (block.F4).
struct SmallCache {
    inner: Arc<dyn BlockDevice>,
    device: Arc<Device>,
    bytes: u64,
    unflushed: AtomicU64,
    /// Number of flushes inside writes until one fails.
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
