//! The options of a StetFS log.

use super::compress::Compression;
use super::trim::Trim;

/// The options with which a log is made and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StetOptions {
    /// The number of lanes of transactions.
    pub lanes: u16,
    /// The compression of chunks.
    pub compression: Compression,
    /// The size of a chunk before compression, in bytes.
    pub chunk: u32,
    /// The treatment of log space that checkpoints free.
    pub trim: Trim,
    /// The number of further lanes, for records of files; 0 if files are synced by transactions.
    pub file_lanes: u16,
    /// The blocks that a transaction of each lane must be able to hold if there are several lanes;
    /// otherwise the log is refused.
    pub least: u64,
    /// The blocks of the largest transaction: one of several lanes must be able to hold it if a
    /// single lane of the whole log is.
    pub most: u64,
    /// Whether the user did not ask for this number of lanes. There may then be fewer, so that each
    /// can hold the largest transaction.
    pub fewer: bool,
    /// The unit of logged changes, in bytes, if transactions are in a region.
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
