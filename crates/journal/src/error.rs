//! Errors of the journal.

use std::sync::Arc;

use stetfs_block::BlockError;
use stetfs_ondisk::OnDiskError;

use crate::ids::Lane;
use crate::region::RegionError;

/// A journal error. It can be cloned, for one failed commit is reported to every caller it
/// concerns.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The device failed a request.
    #[error("{0}")]
    Device(#[from] Arc<BlockError>),
    /// The journal on disk is damaged, or of a kind that is not supported.
    #[error("{0}")]
    Format(#[from] Arc<OnDiskError>),
    /// The region of persistent memory cannot be used.
    #[error("{0}")]
    Region(Arc<RegionError>),
    /// The journal stopped after an earlier error; the volume is read-only now.
    #[error("the journal was stopped by an earlier error: {0}")]
    Aborted(String),
    /// One operation asks for more blocks than a transaction of this journal can hold.
    #[error(
        "an operation needs {need} journal blocks, but a transaction of this journal holds at most {max}; use a larger journal"
    )]
    TooLarge {
        /// The blocks requested.
        need: u32,
        /// The blocks that one transaction may hold.
        max: u32,
    },
    /// The volume was opened read-only.
    #[error("the volume is read-only")]
    ReadOnly,
}

/// The error for a log in which durable content is missing or damaged.
pub(crate) fn lost(why: String) -> OnDiskError {
    OnDiskError::Corrupt {
        what: "journal",
        detail: why,
    }
}

/// The error for a lane that does not exist.
pub(crate) fn no_lane(lane: Lane) -> JournalError {
    JournalError::Aborted(format!("the journal has no lane {}", lane.0))
}

impl From<BlockError> for JournalError {
    fn from(e: BlockError) -> Self {
        JournalError::Device(Arc::new(e))
    }
}

impl From<OnDiskError> for JournalError {
    fn from(e: OnDiskError) -> Self {
        JournalError::Format(Arc::new(e))
    }
}

impl From<RegionError> for JournalError {
    fn from(e: RegionError) -> Self {
        JournalError::Region(Arc::new(e))
    }
}

/// Result of journal calls.
pub type Result<T, E = JournalError> = std::result::Result<T, E>;
