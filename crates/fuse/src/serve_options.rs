//! How a volume is served.

use std::path::PathBuf;

use crate::awake::LowLatency;
use crate::mount::MountOptions;
use crate::volume_fs::VolumeFsOptions;

/// How a volume is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The mount.
    pub mount: MountOptions,
    /// The volume.
    pub volume: VolumeFsOptions,
    /// Threads that take requests; 0: the cores and a few.
    pub threads: usize,
    /// Whether requests come by io_uring.
    pub io_uring: IoUring,
    /// Whether processors are kept from sleeping while requests come one after another.
    pub low_latency: LowLatency,
    /// How far the kernel reads ahead, KiB.
    pub readahead_kib: u32,
}

impl ServeOptions {
    /// The defaults for `source`.
    pub fn new(source: impl Into<PathBuf>) -> ServeOptions {
        ServeOptions {
            mount: MountOptions::new(source),
            volume: VolumeFsOptions::default(),
            threads: 0,
            io_uring: IoUring::default(),
            low_latency: LowLatency::default(),
            readahead_kib: 1024,
        }
    }

    pub(crate) fn n_threads(&self) -> usize {
        match self.threads {
            // Some wait for room in the journal or for the device while others go on.
            0 => std::thread::available_parallelism().map_or(4, usize::from) + 4,
            n => n,
        }
    }
}

/// Whether requests come by io_uring: a queue per processor instead of one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// If the kernel has it and lets us: as root its switch is turned on for the moment that takes,
    /// else it must be on.
    #[default]
    Auto,
    /// Yes; the switch is turned on if need be (which takes root).
    On,
    /// No.
    Off,
}
