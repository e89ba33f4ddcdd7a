//! A machine with a volume: its device, and the region of persistent memory for records of files,
//! where it has one.

use std::sync::Arc;

use stetfs::low::{BlockDevice, Fs, FsError, FsOptions, MemDevice, RegionSource};
use stetfs_block::{Log, Recorder};
use stetfs_nvm::{MemRegion, Region, RegionLog, RegionRecorder};
use xxhash_rust::xxh3::Xxh3;

use crate::volume::open;

/// A machine.
#[derive(Debug)]
pub struct Machine<D = MemDevice, R = MemRegion> {
    /// Its device.
    pub device: Arc<D>,
    /// Its region.
    pub region: Option<Arc<R>>,
}

/// What a crash left of a machine.
pub type Crashed = Machine<MemDevice, MemRegion>;

/// A machine that writes down what is done to it.
pub type Recorded<D> = Machine<Recorder<D>, RegionRecorder<MemRegion>>;

impl<D: BlockDevice + 'static, R: Region + 'static> Machine<D, R> {
    /// One of these parts.
    pub fn new(device: D, region: Option<R>) -> Machine<D, R> {
        Machine {
            device: Arc::new(device),
            region: region.map(Arc::new),
        }
    }

    /// Opens its volume, with its region for records if it has one.
    ///
    /// # Errors
    /// The volume's.
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
    /// One with a device and nothing else.
    pub fn of(device: MemDevice) -> Crashed {
        Machine::new(device, None)
    }

    /// A copy as it is now.
    pub fn fork(&self) -> Crashed {
        Machine::new(self.device.fork(), self.fork_region())
    }

    /// A copy of the region.
    pub fn fork_region(&self) -> Option<MemRegion> {
        self.region.as_ref().map(|region| region.fork())
    }

    /// A copy that writes down what is done to it, in one order; `wrap` gives the device below the
    /// recorder.
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

    /// What it differs in from a device, and all of its region, as one number.
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

    /// The bytes that differ from another's with as large a region: of the device, and whether any
    /// of the region do.
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

/// What an image differs in from `base`, as one number.
pub fn image_hash(base: &MemDevice, image: &MemDevice) -> u64 {
    let mut hash = Xxh3::new();
    let mut bytes = Vec::new();
    for range in base.differences(image) {
        hash.update(&range.start.to_le_bytes());
        bytes.resize((range.end - range.start) as usize, 0);
        // Memory does not fail, and the range is of the device.
        if image.read(range.start, &mut bytes).is_ok() {
            hash.update(&bytes);
        }
    }
    hash.digest()
}

impl<D: BlockDevice> Recorded<D> {
    /// Takes both records. The region's is empty where there is none.
    pub fn take_logs(&self) -> (Log, RegionLog) {
        // A store is behind what it follows on the device: the device's record must not be the
        // shorter one.
        let region = self.region.as_ref().map(|region| region.take_log());
        (self.device.take_log(), region.unwrap_or_default())
    }
}
