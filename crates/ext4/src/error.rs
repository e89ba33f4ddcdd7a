//! Errors of the file system, each with the errno a program sees.

use std::sync::Arc;

use stetfs_block::BlockError;
use stetfs_journal::JournalError;
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::foreign::Foreign;

/// An error of the file system.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FsError {
    /// A plain errno that the operation defines (ENOENT, EEXIST, ENOSPC …), a value of `libc`.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
    /// A structure on the volume contradicts itself: repair with e2fsck. EUCLEAN.
    #[error("the volume is damaged: {what} in block {block}: {detail}; run e2fsck")]
    Corrupt {
        /// The structure, in ext4's term.
        what: &'static str,
        /// The block it was read from (0 if not known).
        block: u64,
        /// The contradiction.
        detail: String,
    },
    /// A feature or a format this version does not handle. EOPNOTSUPP.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The journal is on another device, which is missing, or which belongs to another volume.
    /// EOPNOTSUPP.
    #[error("{0}")]
    JournalDevice(String),
    /// Another user has the volume, or has the file in an atomic group. EBUSY.
    #[error("{0}")]
    InUse(String),
    /// An atomic group has no room for a change. EFBIG.
    #[error(
        "an atomic group holds at most {limit} bytes on this volume, fewer if blocks are new: \
         commit earlier, or give the volume a larger journal"
    )]
    GroupFull {
        /// Bytes.
        limit: u64,
    },
    /// The device failed. EIO (or ENOSPC of the host).
    #[error("{0}")]
    Device(Arc<BlockError>),
    /// The journal failed or stopped. EIO, or EROFS once the volume is read-only.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// The device holds no ext4 volume, but another format. EUCLEAN.
    #[error("this is not an ext4 volume: {0}")]
    Foreign(Arc<Foreign>),
    /// This part of a device holds no ext4 volume. EUCLEAN.
    #[error("{0}")]
    NoVolume(String),
    /// Bytes that do not decode. EUCLEAN.
    #[error("{0}")]
    Format(Arc<OnDiskError>),
}

/// Result of file-system operations.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

impl FsError {
    /// Damage found in `what`, read from `block`.
    pub fn corrupt(what: &'static str, block: u64, detail: impl Into<String>) -> FsError {
        FsError::Corrupt {
            what,
            block,
            detail: detail.into(),
        }
    }

    /// The errno for the calling program.
    pub fn errno(&self) -> i32 {
        match self {
            FsError::Errno(e) => *e,
            FsError::Corrupt { .. }
            | FsError::Format(_)
            | FsError::Foreign(_)
            | FsError::NoVolume(_) => libc::EUCLEAN,
            FsError::Unsupported(_) | FsError::JournalDevice(_) => libc::EOPNOTSUPP,
            FsError::InUse(_) => libc::EBUSY,
            FsError::GroupFull { .. } => libc::EFBIG,
            FsError::Device(e) if matches!(**e, BlockError::NoSpace { .. }) => libc::ENOSPC,
            FsError::Device(_) => libc::EIO,
            FsError::Journal(JournalError::Aborted(_) | JournalError::ReadOnly) => libc::EROFS,
            FsError::Journal(JournalError::TooLarge { .. }) => libc::ENOSPC,
            FsError::Journal(_) => libc::EIO,
        }
    }
}

impl From<BlockError> for FsError {
    fn from(e: BlockError) -> FsError {
        FsError::Device(Arc::new(e))
    }
}

impl From<OnDiskError> for FsError {
    fn from(e: OnDiskError) -> FsError {
        FsError::Format(Arc::new(e))
    }
}
