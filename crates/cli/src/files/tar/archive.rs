//! What packing and unpacking know of archives.

use std::io;

use crate::failure::{Code, Failure};

/// Bytes that are moved at a time.
pub(super) const PART: usize = 1 << 20;

/// An archive that cannot be read.
pub(super) fn unreadable(e: io::Error) -> Failure {
    Failure::new(Code::Usage, format!("cannot read the archive: {e}"))
        .hint("it is to be a tar archive, unpacked: zcat layer.tar.gz | stetfs tar -x IMAGE:/")
}
