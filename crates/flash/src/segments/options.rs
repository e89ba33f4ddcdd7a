//! Options of a log, counts of its work, and errors.

use std::str::FromStr;

use stetfs_block::BlockError;

use super::format::BLOCK;

/// The method of cleaning segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cleaner {
    /// Live blocks are read and written.
    Copy,
    /// Live blocks are shared to their new place, if the device below can share; else copied.
    Share,
}

/// An error: there is no cleaner of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no cleaner {0:?}; there are copy and share")]
pub struct UnknownCleaner(pub String);

impl FromStr for Cleaner {
    type Err = UnknownCleaner;

    fn from_str(text: &str) -> std::result::Result<Cleaner, UnknownCleaner> {
        match text {
            "copy" => Ok(Cleaner::Copy),
            "share" => Ok(Cleaner::Share),
            _ => Err(UnknownCleaner(text.to_owned())),
        }
    }
}

/// The options of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes that the log offers.
    pub capacity: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// A flush of fewer blocks writes them in place (16 as in F2FS; 0: never).
    pub in_place_below: usize,
    /// The method of cleaning.
    pub cleaner: Cleaner,
}

impl LogOptions {
    /// The values of the paper: segments of 2 MiB, writes in place below 16 blocks, cleaning by
    /// shares.
    pub fn new(capacity: u64) -> LogOptions {
        LogOptions {
            capacity,
            segment: 2 << 20,
            in_place_below: 16,
            cleaner: Cleaner::Share,
        }
    }

    /// The same options with the largest capacity for a device of `size` bytes.
    pub fn filling(size: u64) -> LogOptions {
        LogOptions {
            capacity: capacity(size, LogOptions::new(0).segment),
            ..LogOptions::new(0)
        }
    }
}

/// Counts of a log's work since it was made or opened, in blocks of 4 KiB. A power cut does not
/// reset them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LogReport {
    /// Blocks appended.
    pub appended: u64,
    /// Blocks written in place.
    pub in_place: u64,
    /// Blocks moved by the cleaner.
    pub moved: u64,
    /// Blocks among these that were shared.
    pub shared: u64,
    /// Segments cleaned.
    pub cleaned: u64,
    /// Chunks written; each takes one block beside its content.
    pub chunks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// The reason why there is no log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The sizes are not possible.
    #[error(
        "sizes must be multiples of 4096 bytes, with at least 8 blocks in a segment and fewer than \
         2^32 in all"
    )]
    Sizes,
    /// The device is too small.
    #[error("a log of {capacity} bytes needs a device of {needed}; this has {size}")]
    NoRoom {
        /// Bytes of the device.
        size: u64,
        /// Bytes that the log should offer.
        capacity: u64,
        /// Bytes that this capacity needs.
        needed: u64,
    },
    /// The device holds no log.
    #[error("there is no log on this device")]
    NoLog,
    /// The device holds a damaged log.
    #[error("the log on this device is damaged: it has no valid checkpoint")]
    Damaged,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}

/// Fewest segments beyond those of the logical blocks: the one that is being written, the one after
/// it, the reserve, and some that are worth cleaning.
pub(super) const SPARE: u32 = 10;

/// An approximation of the capacity of a log on `size` bytes, with segments of `segment` bytes.
fn capacity(size: u64, segment: u64) -> u64 {
    // Each of the two maps takes a thousandth, and a partial segment may follow.
    let segments = size.saturating_sub(size / 500 + 2 * segment) / segment;
    let bytes = segments.saturating_sub(u64::from(SPARE)) * segment;
    bytes / 11 * 10 / BLOCK * BLOCK
}
