//! Items that packing and unpacking share.

use std::io;

use crate::failure::{Code, Failure};

/// Bytes that are copied at a time.
pub(super) const PART: usize = 1 << 20;

/// The failure for an archive that cannot be read.
pub(super) fn unreadable(e: io::Error) -> Failure {
    Failure::new(Code::Usage, format!("cannot read the archive: {e}"))
        .hint("it must be a tar archive, which may be packed by gzip, bzip2, xz or zstd")
}
