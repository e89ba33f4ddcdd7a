//! What packing and unpacking know of archives.

use std::io;

use crate::failure::{Code, Failure};

/// Bytes that are moved at a time.
pub(super) const PART: usize = 1 << 20;

/// In front of an extended attribute's name in a PAX header, as GNU tar, bsdtar and container
/// runtimes have it.
pub(super) const XATTR: &str = "SCHILY.xattr.";

/// An archive that cannot be read.
pub(super) fn unreadable(e: io::Error) -> Failure {
    Failure::new(Code::Usage, format!("cannot read the archive: {e}"))
        .hint("it is to be a tar archive, unpacked: zcat layer.tar.gz | stetfs tar -x IMAGE:/")
}
