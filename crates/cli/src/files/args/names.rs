//! The arguments of the commands that make, move and remove names: `mkdir`, `rm`, `rmdir`, `mv`,
//! `ln`.

use std::ffi::OsString;

use clap::Args;

use super::shared::{Destination, InsideArgs, Opening, PLACE, owner};
use crate::files::mode::ModeChange;
use crate::files::place::Place;

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct MkdirArgs {
    /// Make missing parent directories; an existing directory is no error.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions of every directory made, as for chmod, such as 750 or u=rwx,go=.
    #[arg(short, long, value_name = "MODE")]
    pub(crate) mode: Option<ModeChange>,
    /// Owner of every directory made: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct RmArgs {
    /// Remove directories and their contents recursively.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist.
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `rmdir`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct RmdirArgs {
    /// Remove each directory, then its parents, as far as the path names them.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// A directory that is not empty is no error, and stays.
    #[arg(long)]
    pub(crate) ignore_fail_on_non_empty: bool,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

const MV: &str = "\
A file moves into DEST if that is a directory, else it gets that name, and replaces a file that has \
it. All places are in one volume; between volumes, and to the host, stetfs cp -a copies, and \
stetfs rm -r removes the source.";

/// Arguments of `mv`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MV}\n\n{PLACE}"))]
pub(crate) struct MvArgs {
    /// Replace existing files. This is the default; it takes back -n.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) force: bool,
    /// Leave existing files as they are, and their sources where they are.
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Replace existing files only if they are older than the source.
    #[arg(short, long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) dest: Destination,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// The sources, and the target: IMAGE:/PATH.
    #[arg(required = true, value_names = ["SOURCE", "DEST"], num_args = 1..)]
    pub(crate) places: Vec<Place>,
}

const LN: &str = "\
Without -s the targets are files of the same volume, IMAGE:/PATH, and get another name; a symbolic \
link gets one itself. With -s a target is any text, which stands in the link; IMAGE: at its \
beginning is left out. The link goes into DEST if that is a directory, else it gets that name.";

/// Arguments of `ln`.
#[derive(Debug, Args)]
#[command(after_help = format!("{LN}\n\n{PLACE}"))]
pub(crate) struct LnArgs {
    /// Make symbolic links.
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace an existing file of that name; a directory is not replaced.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Take DEST as the name if it is a symbolic link to a directory.
    #[arg(short, long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) dest: Destination,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// The targets, and the link: IMAGE:/PATH.
    #[arg(required = true, value_names = ["TARGET", "DEST"], num_args = 1..)]
    pub(crate) words: Vec<OsString>,
}
