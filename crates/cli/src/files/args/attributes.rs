//! The arguments of the commands on the attributes and content of files: `chmod`, `chown`, `chgrp`,
//! `touch`, `truncate`, `setfattr`, `getfattr`, `edit`, and of `df`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;

use super::shared::{InsideArgs, LongHelp, Opening, PLACE};
use crate::files::mode::ModeChange;
use crate::files::place::Place;
use crate::files::size::SizeChange;
use crate::files::time;

/// Arguments of `chmod`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct ChmodArgs {
    /// Change directories and all that is in them. Symbolic links below are left alone.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// The permissions: octal, such as 4755, or symbolic, such as u+x,go-w or a=rX. An octal number
    /// of less than five digits leaves set-user-id and set-group-id of directories as they are.
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: ModeChange,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

const NAMES: &str = "\
Names are those of the volume's own /etc/passwd and /etc/group, not those of the host. Numbers are \
taken always; +NUMBER is never a name.";

/// Options that `chown` and `chgrp` share.
#[derive(Debug, Args)]
pub(crate) struct OwnerOptions {
    /// Change directories and all that is in them. Symbolic links are changed themselves.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links themselves, not the files that they lead to.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
}

/// Arguments of `chown`.
#[derive(Debug, Args)]
#[command(after_help = format!("{NAMES}\n\n{PLACE}"), disable_help_flag = true)]
pub(crate) struct ChownArgs {
    #[command(flatten)]
    pub(crate) options: OwnerOptions,
    /// OWNER, OWNER:GROUP, :GROUP, or OWNER: for the owner's group of /etc/passwd.
    #[arg(value_name = "OWNER[:GROUP]")]
    pub(crate) owner: String,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `chgrp`.
#[derive(Debug, Args)]
#[command(after_help = format!("{NAMES}\n\n{PLACE}"), disable_help_flag = true)]
pub(crate) struct ChgrpArgs {
    #[command(flatten)]
    pub(crate) options: OwnerOptions,
    /// A name or number.
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `touch`.
#[derive(Debug, Args)]
#[command(after_help = PLACE, disable_help_flag = true)]
pub(crate) struct TouchArgs {
    /// Change the access time only.
    #[arg(short)]
    pub(crate) access: bool,
    /// Change the modification time only.
    #[arg(short)]
    pub(crate) modification: bool,
    /// Make no files.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// The time instead of now: YYYY-MM-DD, YYYY-MM-DDTHH:MM[:SS[.FRACTION]], each with Z or
    /// +HH:MM behind it (without, UTC), @SECONDS since 1970, or now.
    #[arg(short, long, value_name = "DATE", value_parser = time::date)]
    pub(crate) date: Option<SystemTime>,
    /// The times of this file, of the host or IMAGE:/PATH, instead of now.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["date", "stamp"])]
    pub(crate) reference: Option<Place>,
    /// The time instead of now: [[CC]YY]MMDDhhmm[.ss], UTC.
    #[arg(short = 't', value_name = "STAMP", value_parser = time::stamp, conflicts_with = "date")]
    pub(crate) stamp: Option<SystemTime>,
    /// Change symbolic links themselves, not the files that they lead to; make no files.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `truncate`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct TruncateArgs {
    /// Make no files.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// The size, bytes: a number, with K, M, G, T, P or E for powers of 1024, and KB, MB and so on
    /// for powers of 1000. Before it + extends, - shortens, < is at most, > is at least, / rounds
    /// down and % rounds up to a multiple.
    #[arg(
        short,
        long,
        value_name = "SIZE",
        allow_hyphen_values = true,
        required_unless_present = "reference"
    )]
    pub(crate) size: Option<SizeChange>,
    /// The size of this file, of the host or IMAGE:/PATH; a SIZE is then relative to it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) reference: Option<Place>,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `setfattr`.
#[derive(Debug, Args)]
#[command(after_help = PLACE, disable_help_flag = true)]
pub(crate) struct SetfattrArgs {
    /// Set the attribute of this name, such as user.comment.
    #[arg(
        short,
        long,
        required_unless_present = "remove",
        conflicts_with = "remove"
    )]
    pub(crate) name: Option<OsString>,
    /// Its value: text, "text" with \\ and \NNN (octal), 0xHEX, or 0sBASE64. Without, it is empty.
    #[arg(short, long, requires = "name", allow_hyphen_values = true)]
    pub(crate) value: Option<OsString>,
    /// Remove the attribute of this name.
    #[arg(short = 'x', long, value_name = "NAME")]
    pub(crate) remove: Option<OsString>,
    /// Change symbolic links themselves, not the files that they lead to.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// How values of attributes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Encoding {
    /// As text in quotes.
    Text,
    /// As 0x and hexadecimal digits.
    Hex,
    /// As 0s and Base64.
    Base64,
}

/// Arguments of `getfattr`.
#[derive(Debug, Args)]
#[command(after_help = PLACE, disable_help_flag = true)]
pub(crate) struct GetfattrArgs {
    /// Print this attribute with its value.
    #[arg(short, long)]
    pub(crate) name: Option<OsString>,
    /// Print the values, too.
    #[arg(short, long)]
    pub(crate) dump: bool,
    /// Show attributes whose names begin with this, such as user. or security.; - is all of them.
    /// A ^ before it and \ in it are ignored. It is no regular expression.
    #[arg(short, long, value_name = "PREFIX", default_value = "user.")]
    pub(crate) r#match: String,
    /// How to show values. The default is text where a value is that, else Base64.
    #[arg(short, long)]
    pub(crate) encoding: Option<Encoding>,
    /// Show the attributes of all files in directories, too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Accepted, as names are whole paths in the volume anyway.
    #[arg(long, hide = true)]
    pub(crate) absolute_names: bool,
    /// Print values only, as they are.
    #[arg(long)]
    pub(crate) only_values: bool,
    /// Show symbolic links themselves, not the files that they lead to.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

const EDIT: &str = "\
The editor gets a copy of the file in a directory of its own; the volume is not open meanwhile. If \
the editor ends well and the copy has changed, it is written back into the file, which keeps owner, \
permissions and attributes. A file that was changed in the volume meanwhile is not overwritten. \
When the copy cannot be written back it stays, and the message says where. A file that does not \
exist is made.";

/// Arguments of `edit`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EDIT}\n\n{PLACE}"))]
pub(crate) struct EditArgs {
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// IMAGE:/PATH
    #[arg(value_name = "IMAGE:/PATH")]
    pub(crate) place: Place,
}

/// Arguments of `df`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Show sizes such as 1.5G, in powers of 1024.
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Show inodes instead of space.
    #[arg(short, long)]
    pub(crate) inodes: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// The volumes: image files, block devices or NBD addresses.
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<PathBuf>,
}
