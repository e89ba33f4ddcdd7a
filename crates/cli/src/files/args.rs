//! Arguments of the commands on files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::place::Place;

/// What to do with files of a volume that is not mounted.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory of an unmounted volume.
    Ls(LsArgs),
    /// Print files of an unmounted volume.
    Cat(CatArgs),
    /// Make directories in an unmounted volume.
    Mkdir(MkdirArgs),
    /// Remove files and directories from an unmounted volume.
    Rm(RmArgs),
    /// Copy files and directories into an unmounted volume, out of one, or from one to another.
    Cp(CpArgs),
    /// Pack files of an unmounted volume into a tar archive, or unpack one into it.
    Tar(TarArgs),
}

const PLACE: &str = "\
A volume's image file, block device or NBD address, a colon, and a path in the volume, such as
disk.img:/etc or nbd://server/db:/etc. What has no colon before a slash or at its end is a path of the
host: write ./a:b for a file of that name.";

/// How volumes are opened.
#[derive(Debug, Args)]
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

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct LsArgs {
    /// With type, mode, links, owner, group, size and time (UTC).
    #[arg(short, long)]
    pub(crate) long: bool,
    /// With all that is below.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `cat`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `mkdir`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct MkdirArgs {
    /// With the directories above, and without complaint if it is there.
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Whose it is: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct RmArgs {
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Without complaint if it is not there.
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
}

const CP: &str = "\
Directories are copied with all that is in them: into DEST if that is a directory, else as DEST. Of a
source that ends in /. what is in it is copied, not itself. Holes, hard links within the command, symbolic
links, modes, pipes and devices are kept; with -a also owners, times and extended attributes. A file that
is there is replaced; a device, pipe or socket is not by a file, nor is a symbolic link that is named as
DEST. Nothing goes through a symbolic link below SOURCE or DEST.

A SOURCE that is a symbolic link is followed, and a pipe or device of the host is read, unless -r or -a is
given: then they are copied themselves. Trouble with one file is told, and the others are copied.

To the host only -a brings set-user-id and set-group-id bits, and these only together with the owner, and
devices. Without, modes are as cp -r makes them. What is left out is counted and said. Other users of a volume must not have it open: it is refused if it is mounted.";

/// Arguments of `cp`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CP}\n\n{PLACE}"))]
pub(crate) struct CpArgs {
    /// With owners, times, extended attributes and flags (chattr); links are copied themselves.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Without what has power: set-user-id, set-group-id and sticky bits of files, devices, the
    /// attributes security.* and trusted.*, and the flags immutable and append only.
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Links and pipes that are named are copied themselves. (Directories are always copied with
    /// all that is in them.)
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Whose the copies are: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// What is copied, and where to.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DEST"])]
    pub(crate) places: Vec<Place>,
}

/// Arguments of `tar`.
#[derive(Debug, Args)]
#[command(after_help = PLACE)]
pub(crate) struct TarArgs {
    /// Pack what is in the directory.
    #[arg(
        short = 'c',
        long,
        required_unless_present = "extract",
        conflicts_with = "extract"
    )]
    pub(crate) create: bool,
    /// Unpack into the directory.
    #[arg(short = 'x', long)]
    pub(crate) extract: bool,
    /// The archive; without, or as -, standard input or output.
    #[arg(short, long, value_name = "ARCHIVE")]
    pub(crate) file: Option<PathBuf>,
    /// Whose it all is: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) owner: Option<(u32, u32)>,
    /// The archive is a layer of an OCI image: .wh.NAME removes NAME, and .wh..wh..opq what its
    /// directory had before.
    #[arg(long, requires = "extract")]
    pub(crate) whiteouts: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// IMAGE:/PATH of a directory.
    #[arg(value_name = "IMAGE:/PATH")]
    pub(crate) place: Place,
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let ids = text
        .split_once(':')
        .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.ok_or_else(|| "must be two numbers, such as 1000:1000".into())
}
