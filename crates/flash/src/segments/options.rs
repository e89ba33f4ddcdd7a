//! How a log is kept, and what is said of it.

use std::str::FromStr;

use stetfs_block::BlockError;

use super::format::BLOCK;

/// How segments are cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cleaner {
    /// What lives is read and written.
    Copy,
    /// What lives is shared to its new place, where the device below can; else copied.
    Share,
}

/// A word that is no way to clean.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to clean; there are copy and share")]
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

/// What a log is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes that it offers.
    pub capacity: u64,
    /// Bytes of a segment.
    pub segment: u64,
    /// A flush of fewer blocks writes them where they are (16 as F2FS has it; 0: never).
    pub in_place_below: usize,
    /// How it cleans.
    pub cleaner: Cleaner,
}

impl LogOptions {
    /// The paper's: segments of 2 MiB, in place below 16 blocks, cleaned by sharing.
    pub fn new(capacity: u64) -> LogOptions {
        LogOptions {
            capacity,
            segment: 2 << 20,
            in_place_below: 16,
            cleaner: Cleaner::Share,
        }
    }

    /// The same, with as much as a device of `size` bytes has room for.
    pub fn filling(size: u64) -> LogOptions {
        LogOptions {
            capacity: capacity(size, LogOptions::new(0).segment),
            ..LogOptions::new(0)
        }
    }
}

/// What a log has done since it was made or opened, in blocks of 4 KiB; a power cut does not end
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LogReport {
    /// Written at the end.
    pub appended: u64,
    /// Written where they were.
    pub in_place: u64,
    /// Moved by the cleaner, shared ones among them.
    pub moved: u64,
    /// Of these: shared.
    pub shared: u64,
    /// Segments cleaned.
    pub cleaned: u64,
    /// Chunks written, a block each beside what they hold.
    pub chunks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// Why there is no log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Sizes that it cannot have.
    #[error(
        "a log has whole blocks of 4096 bytes, at least eight in a segment, and fewer than 2^32"
    )]
    Sizes,
    /// The device is too small.
    #[error("a log of {capacity} bytes needs a device of {needed}; this has {size}")]
    NoRoom {
        /// Bytes of the device.
        size: u64,
        /// Bytes that were to be offered.
        capacity: u64,
        /// Bytes that this takes.
        needed: u64,
    },
    /// The device holds none.
    #[error("there is no log on this device")]
    NoLog,
    /// It holds one that cannot be read.
    #[error("the log on this device is damaged: it has no sound checkpoint")]
    Damaged,
    /// The device's own.
    #[error(transparent)]
    Device(#[from] BlockError),
}

/// Segments at least beside those that the logical blocks fill: the one that is written, the one
/// behind it, the reserve, and some that gain when they are cleaned.
pub(super) const SPARE: u32 = 10;

/// Bytes that a log on `size` bytes has room for, in segments of so many: nearly.
fn capacity(size: u64, segment: u64) -> u64 {
    // The map takes a thousandth, twice, before a segment that is not whole.
    let segments = size.saturating_sub(size / 500 + 2 * segment) / segment;
    let bytes = segments.saturating_sub(u64::from(SPARE)) * segment;
    bytes / 11 * 10 / BLOCK * BLOCK
}
