//! Errors of block devices.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a device request.
pub type Result<T> = std::result::Result<T, BlockError>;

/// The kinds of requests.
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

    /// The name in error texts.
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

/// The error of opening a device or of a request. Cheap to clone, so that the threads that share
/// one flush can share its error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlockError {
    /// The request failed. `source` keeps the errno.
    #[error("{op} of {len} bytes at byte {offset} failed: {source}")]
    Io {
        /// The kind of the request.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// The operating system's error.
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
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The request reaches beyond the end of the device.
    #[error("{op} of {len} bytes at byte {offset} is beyond the end of the device ({size} bytes)")]
    OutOfRange {
        /// The kind of the request.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// A request lacks the required alignment.
    #[error("{op} at byte {offset} is not aligned to {unit} bytes")]
    Unaligned {
        /// The kind of the request.
        op: Op,
        /// First byte of the request.
        offset: u64,
        /// The required alignment in bytes.
        unit: u32,
    },
    /// A write or discard on a device that was opened read-only.
    #[error("{op} on a device that was opened read-only")]
    ReadOnly {
        /// The kind of the request.
        op: Op,
    },
    /// A pair to share is not made of whole units of the device.
    #[error("cannot share at byte {offset}: not a multiple of the device's unit of {unit} bytes")]
    ShareUnit {
        /// The offset or length that is no multiple of the unit.
        offset: u64,
        /// The device's unit in bytes.
        unit: u32,
    },
    /// A batch has more units than the device shares at once.
    #[error("cannot share {units} units at once: the device takes at most {limit}")]
    ShareBatch {
        /// Units of the batch.
        units: u64,
        /// The most units that the device shares at once.
        limit: u64,
    },
    /// A content would be in more places than the device can record.
    #[error(
        "the content at byte {offset} would have more than {limit} references, the device's maximum"
    )]
    ShareReferences {
        /// Offset of the content.
        offset: u64,
        /// Maximum number of places.
        limit: u64,
    },
    /// A unit is the destination of two pairs of a batch, or destination and source.
    #[error(
        "cannot share the unit at byte {offset}: it is a destination, and occurs twice in the batch"
    )]
    ShareOverlap {
        /// Offset of the unit.
        offset: u64,
    },
    /// Source and destination of a pair are on different devices.
    #[error("cannot share byte {offset}: source and destination are on different devices")]
    ShareAcross {
        /// Offset of the source.
        offset: u64,
    },
    /// A write to an Android sparse image, which is read-only.
    #[error(
        "{path} is an Android sparse image, which is read-only; make a plain one of it: stetfs \
         image unsparse {path} IMAGE"
    )]
    Sparse {
        /// The image.
        path: PathBuf,
    },
    /// The image file was truncated while it was open.
    #[error("the image ended at byte {offset}, inside the {size} bytes it had when it was opened")]
    Shrunk {
        /// Size in bytes of the truncated image.
        offset: u64,
        /// Size in bytes when it was opened.
        size: u64,
    },
    /// Another program has the volume open.
    #[error("{} is in use{}", path.display(), holder.as_ref().map(|h| format!(" by {h}")).unwrap_or_default())]
    Locked {
        /// The volume.
        path: PathBuf,
        /// The holder, where it could be found out.
        holder: Option<Holder>,
    },
    /// The volume could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The volume.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The volume was opened but cannot be used as asked.
    #[error("{}: {reason}", path.display())]
    Unsuitable {
        /// The volume.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The requested part of the volume does not exist.
    #[error("{}: {reason}", path.display())]
    Missing {
        /// The volume.
        path: PathBuf,
        /// The missing part.
        reason: String,
    },
}

/// The process, mount or device that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Description for messages.
    pub name: String,
    /// The process id, if another process holds the lock.
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
    /// The error of a failed request. A full host, or an image at its largest size (EFBIG), becomes
    /// [`BlockError::NoSpace`], but not for a flush: that may have lost acknowledged data, which no
    /// free space brings back.
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

    /// Whether the host lacks space.
    pub fn is_full(&self) -> bool {
        matches!(self, BlockError::NoSpace { .. })
    }

    /// Whether a flush failed, possibly inside another request: data acknowledged since the last
    /// successful flush may be lost.
    pub fn is_of_flush(&self) -> bool {
        matches!(self, BlockError::Io { op: Op::Flush, .. })
    }

    /// The part of a request of kind `asked` that the device failed: kind, first byte, length in
    /// bytes. `None` if the device did not try it.
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

    /// The same error with offsets relative to byte `start`.
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

    /// The errno for the caller of a system call.
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
