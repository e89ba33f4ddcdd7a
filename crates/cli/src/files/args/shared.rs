//! Arguments that several commands share: places in volumes, the options of volumes, and owners.

use clap::Args;

use crate::failure::{Code, Failure, Result};
use crate::files::place::Place;
use crate::files::target::Wanted;

/// The help on places in volumes.
pub(super) const PLACE: &str = "\
A volume's image file, block device or NBD address, a colon, and a path in the volume, such as
disk.img:/etc or nbd://server/db:/etc. What has no colon before a slash or at its end is a path of the
host: write ./a:b for a file of that name.";

/// The options with which volumes are opened.
#[derive(Debug, Default, Args)]
pub(crate) struct Opening {
    /// Options as for `stetfs mount`, such as journal=NAME.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

/// Places in volumes.
#[derive(Debug, Args)]
pub(crate) struct InsideArgs {
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// IMAGE:/PATH
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    pub(crate) places: Vec<Place>,
}

/// `--help` of commands in which `-h` is another option.
#[derive(Debug, Args)]
pub(crate) struct LongHelp {
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The options of `cp`, `mv` and `ln` about DEST.
#[derive(Debug, Args)]
pub(crate) struct Destination {
    /// Take DEST as the new name, also if it is a directory.
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    pub(crate) no_target_directory: bool,
    /// Put everything into this directory.
    #[arg(short, long, value_name = "DIR")]
    pub(crate) target_directory: Option<Place>,
}

impl Destination {
    /// Splits the operands into the sources and the target. `place` reads an operand; `missing` and
    /// `usage` are the words of the error.
    ///
    /// # Errors
    /// There is no target.
    pub(crate) fn split<'w, W>(
        &self,
        words: &'w [W],
        place: impl FnOnce(&W) -> Place,
        missing: &str,
        usage: &str,
    ) -> Result<(&'w [W], Place)> {
        match (&self.target_directory, words.split_last()) {
            (Some(dir), _) => Ok((words, dir.clone())),
            (None, Some((to, from))) if !from.is_empty() => Ok((from, place(to))),
            _ => {
                let failure = Failure::new(Code::Usage, format!("the {missing} is missing"));
                Err(failure.hint(format!("write it as: {usage}")))
            }
        }
    }

    /// The handling of the target; `plain` without any of these options.
    pub(in crate::files) fn wanted(&self, plain: Wanted) -> Wanted {
        match (&self.target_directory, self.no_target_directory) {
            (Some(_), _) => Wanted::Dir,
            (None, true) => Wanted::Name,
            (None, false) => plain,
        }
    }
}

/// Reads the owner of `--owner`.
pub(super) fn owner(text: &str) -> std::result::Result<(u32, u32), String> {
    let ids = text
        .split_once(':')
        .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.ok_or_else(|| "must be two numbers, such as 1000:1000".into())
}
