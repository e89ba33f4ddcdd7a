//! Commands on the files of a volume that is not mounted, as coreutils and tar(1) have them. They
//! use the path API of the library.
//!
//! * `place`: the place that an argument names; `volumes`: the volumes open for it;
//! * `tree`: one interface to read and make files, of the host and of volumes;
//! * `build`: new images from directories, archives and container images;
//! * `copy`, `tar`: copies of whole trees; `spot`: the source and the target of `cp`;
//! * `troubles`: errors of single files;
//! * `base64`: bytes as text;
//! * `left_out`: the attributes and files that a copy to the host leaves out;
//! * `moved`, `linked`: `mv` and `ln`; `target`: the target of both;
//! * `permissions`: `chmod`, `chown`, `chgrp`; `mode`: changes of permissions; `accounts`: the
//!   users and groups of a volume; `below`: visits of all that is below a file;
//! * `times`: `touch`, `truncate`; `time`, `size`: times and sizes as text;
//! * `list`, `look`, `space`, `xattrs`, `edit`, `small`: the other commands.

mod accounts;
pub(crate) mod args;
mod base64;
mod below;
pub(crate) mod build;
mod copy;
mod edit;
mod failed;
mod left_out;
mod linked;
mod list;
pub(crate) mod look;
mod meter;
mod mode;
mod moved;
mod permissions;
mod place;
mod quoted;
mod size;
mod small;
mod space;
mod spot;
mod tar;
mod target;
mod time;
mod times;
mod tree;
mod troubles;
mod volumes;
mod xattrs;

use crate::failure::{Code, Result};
use args::FilesCommand;

/// Runs a command.
pub(crate) fn run(command: &FilesCommand, json: bool) -> Result<Code> {
    crate::log::to_stderr();
    match command {
        FilesCommand::Ls(args) => list::run(args, json),
        FilesCommand::Cat(args) => small::cat(args),
        FilesCommand::Mkdir(args) => small::mkdir(args, json),
        FilesCommand::Rm(args) => small::rm(args, json),
        FilesCommand::Rmdir(args) => small::rmdir(args, json),
        FilesCommand::Cp(args) => copy::run(args, json),
        FilesCommand::Mv(args) => moved::run(args, json),
        FilesCommand::Ln(args) => linked::run(args, json),
        FilesCommand::Chmod(args) => permissions::chmod(args, json),
        FilesCommand::Chown(args) => permissions::chown(args, json),
        FilesCommand::Chgrp(args) => permissions::chgrp(args, json),
        FilesCommand::Touch(args) => times::touch(args, json),
        FilesCommand::Truncate(args) => times::truncate(args, json),
        FilesCommand::Setfattr(args) => xattrs::set(args, json),
        FilesCommand::Getfattr(args) => xattrs::get(args, json),
        FilesCommand::Edit(args) => edit::run(args, json),
        FilesCommand::Df(args) => space::run(args, json),
        FilesCommand::Tar(args) => tar::run(args, json),
    }
}
