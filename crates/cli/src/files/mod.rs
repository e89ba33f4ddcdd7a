//! Commands on the files of a volume that is not mounted: `ls`, `cat`, `mkdir`, `rm`, `cp`, `tar`.
//! They are made of the library's paths.
//!
//! * `place`: what an argument names, and the volumes that are open for it;
//! * `tree`: one way to read and make files, of the host and of volumes;
//! * `copy`, `tar`: what moves whole trees;
//! * `list`, `small`: the other commands.

pub(crate) mod args;
mod copy;
mod list;
mod meter;
mod place;
mod small;
mod tar;
mod tree;

use std::io;
use std::path::Path;

use stetfs::low::FsError;

use crate::failure::{Code, Failure, Result};
use args::FilesCommand;

/// Runs a command.
pub(crate) fn run(command: &FilesCommand, json: bool) -> Result {
    crate::log::to_stderr();
    match command {
        FilesCommand::Ls(args) => list::run(args, json),
        FilesCommand::Cat(args) => small::cat(args),
        FilesCommand::Mkdir(args) => small::mkdir(args),
        FilesCommand::Rm(args) => small::rm(args),
        FilesCommand::Cp(args) => copy::run(args, json),
        FilesCommand::Tar(args) => tar::run(args, json),
    }
}

/// The exit code for an error of this kind.
fn code_of(kind: io::ErrorKind) -> Code {
    use io::ErrorKind::{NotFound, QuotaExceeded, StorageFull};
    match kind {
        NotFound => Code::NotFound,
        StorageFull | QuotaExceeded => Code::Io,
        _ => Code::Usage,
    }
}

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
fn host(doing: &str, path: &Path, e: impl Into<io::Error>) -> Failure {
    let e = e.into();
    let message = format!("cannot {doing} {}: {e}", path.display());
    Failure::new(code_of(e.kind()), message)
}

/// Something went wrong with an output.
fn output(e: io::Error) -> Result {
    match e.kind() {
        // Whoever reads has seen enough.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::new(Code::Io, format!("cannot write: {e}"))),
    }
}
