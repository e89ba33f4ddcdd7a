//! Commands on the files of a volume that is not mounted: `ls`, `cat`, `mkdir`, `rm`, `cp`, `tar`.
//! They are made of the library's paths.
//!
//! * `place`: what an argument names; `volumes`: those that are open for it;
//! * `tree`: one way to read and make files, of the host and of volumes;
//! * `copy`, `tar`: what moves whole trees; `spot`: what `cp` is to copy, and where to;
//! * `troubles`: what goes wrong with single files;
//! * `base64`: bytes as text;
//! * `left_out`: what a copy to the host does not bring;
//! * `list`, `small`: the other commands.

pub(crate) mod args;
mod base64;
mod copy;
mod failed;
mod left_out;
mod list;
mod meter;
mod place;
mod quoted;
mod small;
mod spot;
mod tar;
mod tree;
mod troubles;
mod volumes;

use crate::failure::{Code, Result};
use args::FilesCommand;

/// Runs a command.
pub(crate) fn run(command: &FilesCommand, json: bool) -> Result<Code> {
    crate::log::to_stderr();
    let done = |()| Code::Done;
    match command {
        FilesCommand::Ls(args) => list::run(args, json),
        FilesCommand::Cat(args) => small::cat(args).map(done),
        FilesCommand::Mkdir(args) => small::mkdir(args, json).map(done),
        FilesCommand::Rm(args) => small::rm(args, json).map(done),
        FilesCommand::Cp(args) => copy::run(args, json),
        FilesCommand::Tar(args) => tar::run(args, json),
    }
}
