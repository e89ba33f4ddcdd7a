//! The lower level of the library: the file system by inode numbers, devices, journals, and
//! functions on volumes that are not mounted.
//!
//! It is for servers and tools; programs use [`stetfs::Volume`](crate::Volume).
//!
//! ```
//! # let image = stetfs_testkit::Image::make(16 << 20, &Default::default()).unwrap();
//! use stetfs::low::{ROOT_INO, Volume, VolumeOptions};
//!
//! let volume = Volume::open(image.path(), &VolumeOptions::default())?;
//! let root = volume.fs().getattr(ROOT_INO)?;
//! assert_eq!(root.nlink, 3);
//! volume.close()?;
//! # Ok::<(), stetfs::low::FsError>(())
//! ```

mod dump;
mod external;
mod fast_commit;
mod first_look;
mod format;
pub mod format_values;
mod home;
mod host;
mod info;
mod memory;
pub mod options;
mod own_options;
mod part;
mod quota;
mod recover;
mod region;
mod stats;
mod volume;

pub use dump::{JournalImage, JournalRecord, JournalRecordKind, dump_journal};
pub use external::is_write_protected;
pub use fast_commit::{FastChange, FastName};
pub use first_look::{FirstLook, Unlooked, UnlookedJournal, own_options};
pub use format::{FormatTarget, Formatted, format};
pub use home::HomeInfo;
pub use host::Host;
pub use info::{JournalInfo, LeftBehind, VolumeInfo, info, left_behind};
pub use memory::{default_cache_bytes, usable_memory};
pub use own_options::own_option;
pub use part::{Part, PartInfo, Place, Source};
pub use quota::{QuotaIdInfo, QuotaInfo, QuotaKindInfo, quota, set_quota};
pub use recover::{RecoverOptions, Recovered, RecoveryInfo, recover};
pub use region::{RegionFile, RegionInfo, check_region};
pub use stats::{
    CacheStats, DeviceError, DeviceErrors, DeviceStats, InodeStats, JournalStats, LatencyBucket,
    LatencyStats, MemoryStats, NetworkStats, SpaceStats, VolumeStats,
};
pub use stetfs_block::namespaces;
pub use stetfs_block::{
    AlignedBuf, Asked, BlockDevice, BlockError, Direct, FileDevice, Histogram, Latency, MemDevice,
    Preparer, Span, Taken, Tap, Uring,
};
pub use stetfs_block::{OpenOptions as DeviceOptions, Write as BlockWrite};
pub use stetfs_block::{Packed, SparseError, SparseMap, Zeroes, pack, unpack};
pub use stetfs_block::{Share, ShareLimits, SharePair};
pub use stetfs_block::{is_unseen, printable, printable_line};
pub use stetfs_cache::{PolicyKind, UnknownPolicy};
pub use stetfs_ext4::*;
pub use stetfs_format::{FeatureEdits, FormatError, FormatOptions, FormatResult, Found, Profile};
pub use stetfs_journal::compose::{
    Bad as BadJournal, OptionHelp, check_option, did_you_mean, is_option, nearest, option_names,
    options_help, size,
};
pub use stetfs_journal::region::RegionSource;
pub use stetfs_journal::{CHECKPOINT_THREAD, Composition, JournalError, Preset};
pub use stetfs_nbd::{
    Address as NbdAddress, Connect, Connector, NbdDevice, NbdOptions, NbdState, Route,
};
pub use stetfs_ondisk::ext4::time::Timestamp;
// Schemes in crates of their own register themselves when they are linked.
#[cfg(feature = "lanes")]
use stetfs_lanes as _;
pub use stetfs_sync::serve_processor;

/// The presets that StetFS comes with.
pub mod preset {
    pub use stetfs_afs::AFS;
    pub use stetfs_journal::jbd2::{CUSTOM, DATA, ORDERED, WRITEBACK};
    pub use stetfs_journal::stet::{IJOURNAL, LDJ, NVM, STET};
    pub use stetfs_zjournal::ZJOURNAL;
}
pub use volume::{OpenedDevices, ReadDevices, Volume, VolumeOptions, is_in_use, user_of};
