//! Options for serving a volume.

use std::path::PathBuf;

use crate::mount::MountOptions;
use crate::requests::volume_fs::VolumeFsOptions;
use crate::transport::awake::LowLatency;

/// Options for serving a volume.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Options of the mount.
    pub mount: MountOptions,
    /// Options of the volume.
    pub volume: VolumeFsOptions,
    /// Threads that take requests; 0 is the number of cores plus a few.
    pub threads: usize,
    /// Whether requests come by io_uring.
    pub io_uring: IoUring,
    /// Whether processors are kept from sleeping between closely following requests.
    pub low_latency: LowLatency,
    /// Read-ahead of the kernel in KiB.
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
            // Some threads wait for room in the journal or for the device while others go on.
            0 => std::thread::available_parallelism().map_or(4, usize::from) + 4,
            n => n,
        }
    }
}

/// The use of io_uring for requests: a queue per processor instead of one for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// Used if the kernel has it and allows it: as root the kernel's switch is turned on while it
    /// is needed; otherwise it must be on.
    #[default]
    Auto,
    /// Required; the switch is turned on if needed (as root).
    On,
    /// Not used.
    Off,
}
