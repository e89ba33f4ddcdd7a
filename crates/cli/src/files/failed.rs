//! What went wrong with a file, as a failure of the command.

use std::io;
use std::path::Path;

use stetfs::low::FsError;

use crate::failure::{Code, Failure, Result, code_of};

impl From<stetfs::Error> for Failure {
    fn from(e: stetfs::Error) -> Failure {
        let message = e.to_string();
        match e.reason() {
            Some(FsError::Errno(libc::EIO)) => Failure::new(Code::Io, message),
            Some(FsError::Errno(_)) | None => Failure::new(code_of(e.kind()), message),
            Some(reason) => Failure {
                message,
                ..reason.clone().into()
            },
        }
    }
}

/// An error of the host's.
pub(super) fn host(doing: &str, path: &Path, e: impl Into<io::Error>) -> Failure {
    let e = e.into();
    let message = format!("cannot {doing} {}: {e}", path.display());
    Failure::new(code_of(e.kind()), message)
}

/// Something went wrong with an output.
pub(super) fn output(e: io::Error) -> Result {
    match e.kind() {
        // Whoever reads has seen enough.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::new(Code::Io, format!("cannot write: {e}"))),
    }
}
