//! A simulated machine: a device with a volume, and optionally a region of persistent memory for
//! the sync records of files.

use std::sync::Arc;

use stetfs::low::{BlockDevice, Fs, FsError, FsOptions, MemDevice, RegionSource};
use stetfs_block::{Log, Recorder};
use stetfs_nvm::{MemRegion, Region, RegionLog, RegionRecorder};
use xxhash_rust::xxh3::Xxh3;

use crate::volume::open;

/// A machine with its storage.
#[derive(Debug)]
pub struct Machine<D = MemDevice, R = MemRegion> {
    /// The device with the volume.
    pub device: Arc<D>,
    /// The region of persistent memory for sync records, if any.
    pub region: Option<Arc<R>>,
}

/// A machine as a crash leaves it.
pub type Crashed = Machine<MemDevice, MemRegion>;

/// A machine that records all requests to its device and its region.
pub type Recorded<D> = Machine<Recorder<D>, RegionRecorder<MemRegion>>;

impl<D: BlockDevice + 'static, R: Region + 'static> Machine<D, R> {
    /// A machine of these parts.
    pub fn new(device: D, region: Option<R>) -> Machine<D, R> {
        Machine {
            device: Arc::new(device),
            region: region.map(Arc::new),
        }
    }

    /// Opens the volume, with the region for sync records if there is one.
    ///
    /// # Errors
    /// The volume cannot be opened.
    pub fn open(&self, options: &FsOptions) -> Result<Arc<Fs>, FsError> {
        let region = match &self.region {
            None => RegionSource::None,
            Some(region) => RegionSource::Open(Arc::clone(region) as Arc<dyn Region>),
        };
        let options = FsOptions {
            region,
            ..options.clone()
        };
        open(&self.device, &options)
    }
}

impl Crashed {
    /// A machine with a device and no region.
    pub fn of(device: MemDevice) -> Crashed {
        Machine::new(device, None)
    }

    /// A copy of the present state.
    pub fn fork(&self) -> Crashed {
        Machine::new(self.device.fork(), self.fork_region())
    }

    /// A copy of the region.
    pub fn fork_region(&self) -> Option<MemRegion> {
        self.region.as_ref().map(|region| region.fork())
    }

    /// A copy that records all requests to device and region, in one order; `wrap` gives the device
    /// below the recorder.
    pub fn recorded<D: BlockDevice + 'static>(
        &self,
        wrap: impl FnOnce(MemDevice) -> D,
    ) -> Recorded<D> {
        let device = Arc::new(Recorder::new(wrap(self.device.fork())));
        let region = self.fork_region().map(|region| {
            let clock = Arc::clone(&device);
            Arc::new(RegionRecorder::beside(region, move || {
                clock.position() as u64
            }))
        });
        Machine { device, region }
    }

    /// A hash of the device's differences from `base` and of the whole region.
    pub fn hash(&self, base: &MemDevice) -> u64 {
        let device = image_hash(base, &self.device);
        let Some(region) = &self.region else {
            return device;
        };
        let mut hash = Xxh3::new();
        hash.update(&device.to_le_bytes());
        for (at, page) in region.pages() {
            hash.update(&at.to_le_bytes());
            hash.update(&page);
        }
        hash.digest()
    }

    /// The differences from another machine with a region of the same size: the byte ranges of the
    /// device, or that the regions differ. `None` if there are none.
    pub fn differs(&self, other: &Crashed) -> Option<String> {
        let ranges = self.device.differences(&other.device);
        if !ranges.is_empty() {
            return Some(format!("bytes {ranges:?} differ"));
        }
        let same = match (&self.region, &other.region) {
            (None, None) => true,
            (Some(mine), Some(other)) => mine.same(other),
            _ => false,
        };
        (!same).then(|| "its region differs".into())
    }
}

/// A hash of an image's differences from `base`.
pub fn image_hash(base: &MemDevice, image: &MemDevice) -> u64 {
    let mut hash = Xxh3::new();
    let mut bytes = Vec::new();
    for range in base.differences(image) {
        hash.update(&range.start.to_le_bytes());
        bytes.resize((range.end - range.start) as usize, 0);
        // A memory device does not fail, and the range lies within the device.
        if image.read(range.start, &mut bytes).is_ok() {
            hash.update(&bytes);
        }
    }
    hash.digest()
}

impl<D: BlockDevice> Recorded<D> {
    /// Takes both logs. The region's is empty if there is no region.
    pub fn take_logs(&self) -> (Log, RegionLog) {
        // The region's log is taken first: a store refers to the device events before it, so the
        // device's log must not be the shorter one.
        let region = self.region.as_ref().map(|region| region.take_log());
        (self.device.take_log(), region.unwrap_or_default())
    }
}
