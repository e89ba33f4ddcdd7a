//! Persistent memory for models: each store, flush and fence is a step, and it loses its power at
//! the same moment as the disk.

use std::ops::Range;
use std::sync::Arc;

use stetfs_block::Result;
use stetfs_nvm::{Durability, MemRegion, Region, RegionRecorder, RegionReplay};
use stetfs_sync::plain::shuttle::current;
use stetfs_sync::plain::shuttle::rand::{Rng, thread_rng};

use super::disk::Disk;

/// The stores to a region, with their recording.
pub struct Stores {
    base: MemRegion,
    seen: RegionRecorder<MemRegion>,
}

impl Stores {
    /// A region of zeroes.
    pub fn new(size: u64) -> Stores {
        let base = MemRegion::new(size);
        let task = || usize::from(current::me()) as u32;
        Stores {
            seen: RegionRecorder::new(base.fork()).numbered(task),
            base,
        }
    }

    /// The region after a cut now: fenced stores, and some of the others.
    pub fn image(&self) -> MemRegion {
        let log = self.seen.log();
        let mut replay = RegionReplay::new(&self.base, &log);
        replay.advance_to(log.len());
        let mut rng = thread_rng();
        match rng.gen_range(0..4) {
            0 => replay.everything(),
            1 => replay.only_durable(),
            _ => replay.crash(|line| rng.gen_range(0..=line.stores)),
        }
    }
}

/// A region whose steps are counted with those of the disk.
pub struct Memory {
    pub disk: Arc<Disk>,
    pub stores: Arc<Stores>,
}

impl Memory {
    fn stepped(&self) -> &RegionRecorder<MemRegion> {
        self.disk.elsewhere();
        &self.stores.seen
    }
}

impl Region for Memory {
    fn size(&self) -> u64 {
        self.stores.seen.size()
    }

    fn durability(&self) -> Durability {
        Durability::Power
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.stores.seen.read(offset, buf)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.stepped().store(offset, bytes)
    }

    fn load_u64(&self, offset: u64) -> Result<u64> {
        self.stores.seen.load_u64(offset)
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<()> {
        self.stepped().store_u64(offset, value)
    }

    fn flush(&self, range: Range<u64>) -> Result<()> {
        self.stepped().flush(range)
    }

    fn fence(&self) -> Result<()> {
        self.stepped().fence()
    }
}
