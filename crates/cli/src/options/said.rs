//! The options of a mount as they were given.

use std::path::PathBuf;

use stetfs::low::options::VolumeRequest;
use stetfs_fuse::{IoUring, LowLatency, Opens};

use crate::sandbox::Wanted;

/// The options of `-o`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The options of the volume.
    pub(crate) request: VolumeRequest,
    pub(crate) remount: bool,
    pub(crate) allow_other: Option<bool>,
    pub(crate) threads: usize,
    pub(crate) io_uring: IoUring,
    pub(crate) low_latency: LowLatency,
    pub(crate) sandbox: Wanted,
    /// The file for messages; an absolute path.
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) noxattr: bool,
    /// Reads and writes bypass the page cache.
    pub direct_io: bool,
    pub(crate) writeback_cache: bool,
    pub(crate) atomic: bool,
    /// Seconds; 0: never.
    pub(crate) atomic_timeout: Option<u32>,
    pub(crate) idmap: bool,
    pub(crate) fakeroot: bool,
    pub(crate) opens: Opens,
    pub(crate) nosuid: bool,
    pub(crate) nodev: bool,
    pub(crate) noexec: bool,
    pub(crate) nosymfollow: bool,
    /// Warnings about options given twice.
    pub(super) warnings: Vec<String>,
}
