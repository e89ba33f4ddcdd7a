//! Errors of block devices.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of a device request.
pub type Result<T> = std::result::Result<T, BlockError>;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush of the device's volatile cache.
    Flush,
    /// Discard (trim).
    Discard,
    /// Sharing of content.
    Share,
}

impl Op {
    /// All kinds.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Share];

    /// Its name, as errors have it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::Share => "share",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a device could not be opened or a request failed. Cheap to clone, so that the threads that
/// share one flush can share its error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlockError {
    /// The request failed. `source` keeps the errno.
    #[error("{op} of {len} bytes at byte {offset} failed: {source}")]
    Io {
        /// What was asked.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The file system that holds the image is full (ENOSPC or EDQUOT), or the image may not become
    /// larger (EFBIG).
    #[error("no space on the host for {len} bytes at byte {offset} of the image: {source}")]
    NoSpace {
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The request reaches beyond the end of the device.
    #[error("{op} of {len} bytes at byte {offset} is beyond the end of the device ({size} bytes)")]
    OutOfRange {
        /// What was asked.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// A request that has to be aligned is not.
    #[error("{op} at byte {offset}, which is no multiple of {unit}")]
    Unaligned {
        /// What was asked.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// What it has to be a multiple of.
        unit: u32,
    },
    /// A write or discard on a device that was opened read-only.
    #[error("{op} on a device that was opened read-only")]
    ReadOnly {
        /// What was asked.
        op: Op,
    },
    /// What is to be shared is no whole unit of the device.
    #[error("a share at byte {offset}: this device shares units of {unit} bytes")]
    ShareUnit {
        /// The place or length that is no multiple.
        offset: u64,
        /// What it has to be a multiple of.
        unit: u32,
    },
    /// A batch has more units than the device shares at once.
    #[error("a batch of {units} units to share; this device takes at most {limit}")]
    ShareBatch {
        /// Units of the batch.
        units: u64,
        /// What the device takes.
        limit: u64,
    },
    /// A content would be in more places than the device can note.
    #[error(
        "what is at byte {offset} would be in more than {limit} places, the most that this device can note"
    )]
    ShareReferences {
        /// Where the content is.
        offset: u64,
        /// Places at most.
        limit: u64,
    },
    /// A place is the destination of two pairs of a batch, or destination and source.
    #[error(
        "the unit at byte {offset} is a destination, and occurs a second time in the same batch"
    )]
    ShareOverlap {
        /// The place.
        offset: u64,
    },
    /// Source and destination of a pair are on two devices.
    #[error("what is at byte {offset} is on another device than where it is to be shared to")]
    ShareAcross {
        /// The source.
        offset: u64,
    },
    /// What is to be written is an Android sparse image.
    #[error(
        "{path} is an Android sparse image, which is only read; `stetfs image unsparse {path} IMAGE` makes a plain one of it"
    )]
    Sparse {
        /// The image.
        path: PathBuf,
    },
    /// The image became shorter while it was open.
    #[error("the image ended at byte {offset}, inside the {size} bytes it had when it was opened")]
    Shrunk {
        /// Where the data ended.
        offset: u64,
        /// Size in bytes when it was opened.
        size: u64,
    },
    /// Somebody else has the volume open.
    #[error("{} is in use{}", path.display(), holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default())]
    Locked {
        /// The volume.
        path: PathBuf,
        /// Who has it, where that could be found out.
        holder: Option<Holder>,
    },
    /// The volume could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The volume.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The volume was opened but cannot be used as asked.
    #[error("{}: {reason}", path.display())]
    Unsuitable {
        /// The volume.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The part of it that was asked for is not there.
    #[error("{}: {reason}", path.display())]
    Missing {
        /// The volume.
        path: PathBuf,
        /// What is not there.
        reason: String,
    },
}

/// Who has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// For messages.
    pub name: String,
    /// Its process id, if it is another process that has it locked.
    pub pid: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl From<String> for Holder {
    fn from(name: String) -> Holder {
        Holder { name, pid: None }
    }
}

impl BlockError {
    /// The error of a request; a full host, or an image that has its largest size (EFBIG), becomes
    /// [`BlockError::NoSpace`], but for a flush: what is lost then is what was acknowledged, and
    /// room does not bring it back.
    pub fn io(op: Op, offset: u64, len: u64, source: io::Error) -> Self {
        let full = op != Op::Flush
            && matches!(
                source.raw_os_error(),
                Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
            );
        let source = Arc::new(source);
        if full {
            BlockError::NoSpace {
                offset,
                len,
                source,
            }
        } else {
            BlockError::Io {
                op,
                offset,
                len,
                source,
            }
        }
    }

    /// Whether what is missing is room on the host.
    pub fn is_full(&self) -> bool {
        matches!(self, BlockError::NoSpace { .. })
    }

    /// Whether a flush failed, be it inside another request: what was acknowledged since the last
    /// one that succeeded may be lost.
    pub fn is_of_flush(&self) -> bool {
        matches!(self, BlockError::Io { op: Op::Flush, .. })
    }

    /// What the device failed, of a request for `asked`: kind, first byte, bytes. `None` where it
    /// was not tried.
    pub(crate) fn failed(&self, asked: Op) -> Option<(Op, u64, u64)> {
        match self {
            BlockError::Io {
                op, offset, len, ..
            } => Some((*op, *offset, *len)),
            BlockError::NoSpace { offset, len, .. } => Some((Op::Write, *offset, *len)),
            BlockError::Shrunk { offset, .. } => Some((asked, *offset, 0)),
            _ => None,
        }
    }

    /// The same error, told by who counts bytes from `start` on.
    pub(crate) fn seen_from(mut self, start: u64) -> Self {
        match &mut self {
            BlockError::Io { op: Op::Flush, .. } => {}
            BlockError::Io { offset, .. }
            | BlockError::NoSpace { offset, .. }
            | BlockError::ShareReferences { offset, .. }
            | BlockError::Shrunk { offset, .. } => *offset = offset.saturating_sub(start),
            _ => {}
        }
        self
    }

    /// The error of opening `path`.
    pub fn open(path: &Path, source: impl Into<io::Error>) -> Self {
        BlockError::Open {
            path: path.to_owned(),
            source: Arc::new(source.into()),
        }
    }

    /// The errno that describes this error to a system call's caller.
    pub fn errno(&self) -> i32 {
        match self {
            BlockError::Io { source, .. }
            | BlockError::Open { source, .. }
            | BlockError::NoSpace { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            BlockError::OutOfRange { .. } | BlockError::Shrunk { .. } => libc::EIO,
            BlockError::ReadOnly { .. } | BlockError::Sparse { .. } => libc::EROFS,
            BlockError::Locked { .. } => libc::EBUSY,
            BlockError::Missing { .. } => libc::ENOENT,
            BlockError::ShareBatch { .. } => libc::E2BIG,
            BlockError::ShareReferences { .. } => libc::EMLINK,
            BlockError::ShareAcross { .. } => libc::EXDEV,
            BlockError::ShareUnit { .. }
            | BlockError::Unaligned { .. }
            | BlockError::ShareOverlap { .. }
            | BlockError::Unsuitable { .. } => libc::EINVAL,
        }
    }
}
