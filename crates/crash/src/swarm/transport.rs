//! The way from a volume to its device: direct, or through an NBD server that may die and forget
//! writes.
//!
//! The recording is below the server: writes that the client saw acknowledged and did not flush are
//! uncertain in a crash, as ever. A server that forgets takes some of them back; the recording
//! shows that as writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use stetfs::low::{BlockDevice, MemDevice};
use stetfs_block::{BlockError, Read, Replay, Stats, Write};
use stetfs_nbd::{NbdDevice, NbdOptions};
use stetfs_testkit::nbd::{ALL, Disk, Done, FUA, How, MULTI_CONN, Server};

use super::fault::{Device, Failing};
use super::plan::Plan;

/// Time for which the client looks for a server that will come back.
const LOOKED_FOR: Duration = Duration::from_secs(20);
/// Time for which the client looks for a server that will not come back.
const MISSED: Duration = Duration::from_millis(100);
/// Fewest requests from the return of a server to its next death; with fewer the client could make
/// no progress.
const SOON: u64 = 64;
/// Most time that an answer may take.
const ANSWER: Duration = Duration::from_secs(40);

/// The device of a run as the disk of an NBD server.
struct Served {
    device: Arc<Device>,
    base: MemDevice,
    rng: Mutex<fastrand::Rng>,
    forgets: bool,
    /// Number of bytes that were taken back.
    forgotten: AtomicU64,
}

fn errno(e: BlockError) -> u32 {
    e.errno().unsigned_abs()
}

impl Disk for Served {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Done {
        self.device.read(at, into).map_err(errno)
    }

    fn write(&self, at: u64, data: &[u8], fua: bool) -> Done {
        let write = Write {
            fua,
            ..Write::new(at, data)
        };
        self.device.write_batch(&[write]).map_err(errno)
    }

    fn zero(&self, at: u64, len: u64, fua: bool) -> Done {
        self.device.zero(at..at + len).map_err(errno)?;
        match fua {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn trim(&self, at: u64, len: u64) -> Done {
        self.device.discard(at..at + len).map_err(errno)
    }

    fn flush(&self) -> Done {
        self.device.flush().map_err(errno)
    }

    /// Takes back a random choice of the unflushed sectors.
    fn forget(&self) {
        if !self.forgets {
            return;
        }
        let log = self.device.log();
        let mut replay = Replay::new(&self.base, &log);
        replay.advance_to(log.len());
        let rng = &mut *self.rng.lock();
        let left = replay.crash(|_| rng.bool());
        let now = self.device.inner().inner().fork();
        for range in now.differences(&left) {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            // A memory device does not fail, and the range lies within the device.
            if left.read(range.start, &mut bytes).is_ok() {
                let taken = self.device.write(range.start, &bytes);
                debug_assert!(taken.is_ok(), "no fault is armed with a forgetful server");
                self.forgotten.fetch_add(bytes.len() as u64, Relaxed);
            }
        }
    }
}

/// A deliberate fault: a client of a forgetful server that rewrites nothing.
struct Careless {
    inner: Arc<Device>,
    served: Served,
    every: u64,
    /// Number of requests until the server forgets.
    left: AtomicU64,
}

impl Careless {
    fn asked(&self) {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            self.served.forget();
            self.left.store(self.every, Relaxed);
        }
    }
}

impl BlockDevice for Careless {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_batch(&self, reads: &mut [Read<'_>]) -> stetfs_block::Result<()> {
        self.asked();
        self.inner.read_batch(reads)
    }

    fn write_batch(&self, writes: &[Write<'_>]) -> stetfs_block::Result<()> {
        self.asked();
        self.inner.write_batch(writes)
    }

    fn flush(&self) -> stetfs_block::Result<()> {
        self.asked();
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> stetfs_block::Result<()> {
        self.inner.discard(range)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

/// The way to a device.
pub(super) struct Transport {
    /// The device for the volume.
    pub(super) above: Arc<dyn BlockDevice>,
    server: Option<Arc<Server<Served>>>,
}

impl Transport {
    /// The way that a plan asks for, to a device that equalled `base` when its recording began. The
    /// fault is armed.
    ///
    /// # Errors
    /// A server cannot be started, or reached.
    pub(super) fn of(
        plan: &Plan,
        device: &Arc<Device>,
        base: &MemDevice,
        fault: Option<Failing<'_>>,
    ) -> Result<Transport> {
        let mut way = match plan.is("transport", "nbd") {
            true => Transport::served(plan, device, base, fault)?,
            false => Transport {
                above: Arc::clone(device) as Arc<dyn BlockDevice>,
                server: None,
            },
        };
        if let Some(fault) = fault {
            way.above = fault.above(way.above, device);
            fault.arm(device.inner());
            if let (true, Some(server)) = (fault.is_of_server(), &way.server) {
                let request = fault.request();
                server.behave(|how| how.again = Some(request.max(SOON)));
                server.die_in(request);
            }
        }
        Ok(way)
    }

    fn served(
        plan: &Plan,
        device: &Arc<Device>,
        base: &MemDevice,
        fault: Option<Failing<'_>>,
    ) -> Result<Transport> {
        let mut rng = fastrand::Rng::with_seed(plan.seed ^ 0x6e62_6400);
        let without = |flag: u16, is_there: bool| if is_there { 0 } else { flag };
        let stays_away = fault.is_some_and(Failing::is_for_good);
        let how = How {
            flags: ALL & !without(FUA, device.has_fua()) & !without(MULTI_CONN, rng.bool()),
            is_structured: rng.bool(),
            blocks: (if rng.bool() { 1 } else { 512 }, 1 << 20),
            stays_away,
            ..How::default()
        };
        let served = Served {
            device: Arc::clone(device),
            base: base.fork(),
            rng: Mutex::new(rng.fork()),
            forgets: !stays_away,
            forgotten: AtomicU64::new(0),
        };
        if let Some(fault) = fault.filter(|fault| fault.is_careless()) {
            let every = fault.request().max(SOON);
            return Ok(Transport {
                above: Arc::new(Careless {
                    inner: Arc::clone(device),
                    served,
                    every,
                    left: AtomicU64::new(every),
                }),
                server: None,
            });
        }
        let server = Server::new(Arc::new(served), how, plan.seed).context("an NBD server")?;
        let options = NbdOptions {
            timeout: if stays_away { MISSED } else { LOOKED_FOR },
            answer: ANSWER,
            ..NbdOptions::default()
        };
        let client =
            NbdDevice::open(server.address().as_ref(), options).context("an NBD client")?;
        Ok(Transport {
            above: Arc::new(client),
            server: Some(Arc::new(server)),
        })
    }

    /// A function that says whether the server has died.
    pub(super) fn has_died(&self) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let server = self.server.clone();
        move || server.as_ref().is_some_and(|server| server.deaths() > 0)
    }

    /// Number of bytes that the server took back.
    pub(super) fn forgotten(&self) -> u64 {
        let of = |server: &Arc<Server<Served>>| server.disk().forgotten.load(Relaxed);
        self.server.as_ref().map_or(0, of)
    }
}
