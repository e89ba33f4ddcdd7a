//! Errors of making a volume. Each says what to do next.

use stetfs_block::BlockError;
use stetfs_ondisk::OnDiskError;

use crate::found::Found;

/// The reason why a volume is not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FormatError {
    /// Options that contradict each other, or are out of range.
    #[error("{0}")]
    Options(String),
    /// The space is too small or too large for a volume with these options.
    #[error("{0}")]
    Size(String),
    /// The space holds something that would be lost.
    #[error("it holds {0}, which would be lost")]
    Occupied(Found),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// A structure could not be encoded: a defect of this crate.
    #[error("a structure of the new volume cannot be stored: {0}")]
    Encoding(#[from] OnDiskError),
}

/// The result of making a volume.
pub type Result<T> = std::result::Result<T, FormatError>;

/// An error of contradicting options.
pub(crate) fn options<T>(text: impl Into<String>) -> Result<T> {
    Err(FormatError::Options(text.into()))
}

/// An error of the size.
pub(crate) fn size<T>(text: impl Into<String>) -> Result<T> {
    Err(FormatError::Size(text.into()))
}
