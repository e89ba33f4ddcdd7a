//! Errors of files as failures of the command.

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

/// The failure for an error of the host.
pub(super) fn host(doing: &str, path: &Path, e: impl Into<io::Error>) -> Failure {
    let e = e.into();
    let message = format!("cannot {doing} {}: {e}", path.display());
    Failure::new(code_of(e.kind()), message)
}

/// The failure for an error of an output.
pub(super) fn output(e: io::Error) -> Result {
    match e.kind() {
        // The reader closed the pipe: it has enough.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::new(Code::Io, format!("cannot write: {e}"))),
    }
}
