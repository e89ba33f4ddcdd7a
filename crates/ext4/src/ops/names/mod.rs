//! Operations on names: looking up, listing, making, moving and removing them.

mod create;
mod link;
mod lookup;
mod readdir;
mod redo;
mod rename;
mod rename_apply;
mod symlink;
mod tmpfile;
mod unlink;

pub(crate) use create::New;
