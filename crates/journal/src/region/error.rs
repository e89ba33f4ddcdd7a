//! What can be wrong with a region.

use stetfs_ondisk::uuid;

/// What is left to do where there is no region.
const GIVE_UP: &str = "where it is gone, a recovery without it (stetfs recover --without-nvm) makes the volume as of its last commit";

/// The same, where the log of transactions is there.
const GIVE_UP_LOG: &str = "where it is gone, a recovery without it (stetfs recover --without-nvm --salvage) leaves the blocks as they are, which is as of the last checkpoint, or between two: e2fsck -f is to follow";

/// Why a region cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegionError {
    /// It holds records of another volume.
    #[error(
        "the region may hold records of volume {}: recover or unmount that volume with it first, or name another region",
        uuid::text(.0)
    )]
    InUse([u8; 16]),
    /// It holds records of another mount of the same volume.
    #[error(
        "the region is of another mount of this volume, and its records no longer count: empty it \
         (truncate it to 0 and to its size again), or name another region"
    )]
    Earlier,
    /// There are bytes in it that are none of ours.
    #[error("the region is not empty and holds no records: name a new file, or one full of zeroes")]
    NotOurs,
    /// It was smaller, and there are bytes in what it has now.
    #[error(
        "the region had {0} bytes when it was used last, and what lies behind them is not empty: it may be another \
         volume's part of the file; say which part is this one's with nvm_offset= and nvm_size="
    )]
    Grown(u64),
    /// It is too small.
    #[error("a region of {size} bytes is too small: it takes at least {least}")]
    TooSmall {
        /// Its bytes.
        size: u64,
        /// What it needs.
        least: u64,
    },
    /// The records that the volume's log speaks of are not there.
    #[error("the region with the records of files that were synced is lost: {0}; {GIVE_UP}")]
    Lost(String),
    /// The transactions that the volume's log speaks of are not there.
    #[error("the region with the log of transactions is lost: {0}; {GIVE_UP_LOG}")]
    LogLost(String),
    /// Nobody said where the transactions are that the volume's log speaks of.
    #[error(
        "the log of transactions is in a region of persistent memory: name it with nvm=PATH; {GIVE_UP_LOG}"
    )]
    LogNotNamed,
    /// The journal is nothing without one.
    #[error("this journal's log is in a region of persistent memory: name it with nvm=PATH")]
    Needed,
    /// Nobody said where the records are that the volume's log speaks of.
    #[error(
        "records of files that were synced are in a region of persistent memory: name it with nvm=PATH; {GIVE_UP}"
    )]
    NotNamed,
}

impl RegionError {
    /// Whether the journal that was asked for lacks its region.
    pub fn is_needed(&self) -> bool {
        matches!(self, RegionError::Needed)
    }
}
