//! How a StetFS log is made.

use super::compress::Compression;
use super::trim::Trim;

/// How a log is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StetOptions {
    /// Lanes.
    pub lanes: u16,
    /// How chunks are compressed.
    pub compression: Compression,
    /// Raw bytes of a chunk.
    pub chunk: u32,
    /// What is done with log space that checkpoints free.
    pub trim: Trim,
    /// Lanes for file-level records, beside the others; 0: files are synced by transactions.
    pub file_lanes: u16,
    /// Blocks that a transaction of each lane must be able to hold, where there are several; else
    /// the log is refused.
    pub least: u64,
    /// Blocks of the largest transaction: one of several lanes must be able to hold it if the log
    /// in one piece is.
    pub most: u64,
    /// The number of lanes was nobody's wish: there are fewer, so that each can hold the largest
    /// transaction.
    pub fewer: bool,
    /// Transactions are in a region, as what changed in units of so many bytes.
    pub changes: Option<usize>,
}

impl Default for StetOptions {
    fn default() -> StetOptions {
        StetOptions {
            lanes: 1,
            compression: Compression::None,
            chunk: 128 << 10,
            trim: Trim::Off,
            file_lanes: 0,
            least: 0,
            most: 0,
            fewer: false,
            changes: None,
        }
    }
}
