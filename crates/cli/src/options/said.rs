//! What options say.

use std::path::PathBuf;
use std::time::Duration;

use stetfs::low::{Atime, NbdOptions, OnDataError, OnError, PolicyKind, Preset};
use stetfs_fuse::{IoUring, LowLatency, Opens};

use crate::part::{NvmOptions, PartOptions};
use crate::sandbox::Wanted;

/// All that `-o` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) read_only: bool,
    pub(crate) remount: bool,
    pub(crate) preset: Option<Preset>,
    /// Options of the journal, in the order in which they were said.
    pub(crate) journal: Vec<(String, String)>,
    /// `data=` of the volume's own options, which counts where nothing is said of the journal.
    pub(crate) volume_data: Option<String>,
    pub(crate) commit_secs: Option<u32>,
    pub(crate) epoch: Option<u64>,
    pub(crate) dirty_expire: Option<Duration>,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) cache_policy: PolicyKind,
    pub(crate) erase_block: Option<u64>,
    pub(crate) atime: Option<Atime>,
    pub(crate) nodiratime: bool,
    pub(crate) lazytime: bool,
    pub(crate) discard: bool,
    pub(crate) bsd_groups: Option<bool>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) data_err: OnDataError,
    pub(crate) allow_other: Option<bool>,
    pub(crate) no_recovery: bool,
    pub(crate) journal_path: Option<PathBuf>,
    pub(crate) nvm: NvmOptions,
    pub(crate) nbd: NbdOptions,
    pub(crate) part: PartOptions,
    pub(crate) threads: usize,
    pub(crate) io_uring: IoUring,
    pub(crate) low_latency: LowLatency,
    pub(crate) sandbox: Wanted,
    /// Where messages go. Absolute.
    pub(crate) log_file: Option<PathBuf>,
    pub(crate) noxattr: bool,
    pub(crate) direct_io: bool,
    pub(crate) writeback_cache: bool,
    pub(crate) atomic: bool,
    /// Seconds; 0: never.
    pub(crate) atomic_timeout: Option<u32>,
    pub(crate) idmap: bool,
    pub(crate) fakeroot: bool,
    pub(crate) opens: Opens,
    pub(crate) sync: bool,
    pub(crate) dirsync: bool,
    pub(crate) no_barrier: bool,
    pub(crate) async_commit: bool,
    pub(crate) nosuid: bool,
    pub(crate) nodev: bool,
    pub(crate) noexec: bool,
    pub(crate) nosymfollow: bool,
    /// Of what was said twice.
    pub(super) warnings: Vec<String>,
}
