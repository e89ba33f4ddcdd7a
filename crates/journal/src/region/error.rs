//! The errors of regions.

use stetfs_ondisk::uuid;

/// The advice for a lost region.
const GIVE_UP: &str = "if it is gone, recover without it: `stetfs recover --without-nvm` restores \
     the volume as of its last commit";

/// The advice for a lost region with the log of transactions.
const GIVE_UP_LOG: &str = "if it is gone, recover without it: `stetfs recover --without-nvm \
     --salvage` keeps the blocks as of the last checkpoint, or between two; then run e2fsck -f";

/// The reason why a region cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegionError {
    /// The region holds records of another volume.
    #[error(
        "the region may hold records of volume {}: recover or unmount that volume with it first, or name another region",
        uuid::text(.0)
    )]
    InUse([u8; 16]),
    /// The region holds records of another mount of the same volume.
    #[error(
        "the region belongs to another mount of this volume, and its records no longer count: \
         empty it (truncate it to 0 and to its size again), or name another region"
    )]
    Earlier,
    /// The region contains bytes that are not StetFS's.
    #[error("the region is not empty and holds no records: name a new file, or one full of zeroes")]
    NotOurs,
    /// The region was smaller, and its new part is not empty.
    #[error(
        "the region had {0} bytes when it was last used, and the bytes behind them are not empty: \
         they may belong to another volume; name this volume's part of the file with nvm_offset= \
         and nvm_size="
    )]
    Grown(u64),
    /// The region is too small.
    #[error("a region of {size} bytes is too small: it needs at least {least}")]
    TooSmall {
        /// The region's bytes.
        size: u64,
        /// The fewest bytes.
        least: u64,
    },
    /// The records that the volume's log refers to are not in the region.
    #[error("the region with the records of synced files is lost: {0}; {GIVE_UP}")]
    Lost(String),
    /// The transactions that the volume's log refers to are not in the region.
    #[error("the region with the log of transactions is lost: {0}; {GIVE_UP_LOG}")]
    LogLost(String),
    /// The volume's log is in a region that was not named.
    #[error(
        "the log of transactions is in a region of persistent memory: name it with nvm=PATH; {GIVE_UP_LOG}"
    )]
    LogNotNamed,
    /// The journal needs a region, and none was named.
    #[error("this journal's log is in a region of persistent memory: name it with nvm=PATH")]
    Needed,
    /// The volume's records are in a region that was not named.
    #[error(
        "records of synced files are in a region of persistent memory: name it with nvm=PATH; \
         {GIVE_UP}"
    )]
    NotNamed,
}

impl RegionError {
    /// Whether the requested journal lacks its region.
    pub fn is_needed(&self) -> bool {
        matches!(self, RegionError::Needed)
    }
}
