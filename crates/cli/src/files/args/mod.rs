//! The arguments of the commands on files.

mod attributes;
mod build;
mod copy;
mod names;
mod shared;

pub(crate) use attributes::{
    ChgrpArgs, ChmodArgs, ChownArgs, DfArgs, EditArgs, Encoding, GetfattrArgs, OwnerOptions,
    SetfattrArgs, TouchArgs, TruncateArgs,
};
pub(crate) use build::{BuildArgs, Free, ImageSize};
pub(crate) use copy::{CpArgs, TarArgs};
pub(crate) use names::{LnArgs, MkdirArgs, MvArgs, RmArgs, RmdirArgs};
pub(crate) use shared::{InsideArgs, Opening};

use clap::{Args, Subcommand};

use self::shared::{LongHelp, PLACE};

/// The commands on files of a volume that is not mounted.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List directories of an unmounted volume.
    Ls(LsArgs),
    /// Print files of an unmounted volume.
    Cat(CatArgs),
    /// Make directories in an unmounted volume.
    Mkdir(MkdirArgs),
    /// Remove files and directories from an unmounted volume.
    Rm(RmArgs),
    /// Remove empty directories from an unmounted volume.
    Rmdir(RmdirArgs),
    /// Copy files and directories into an unmounted volume, out of one, or from one to another.
    Cp(CpArgs),
    /// Move or rename files and directories in an unmounted volume.
    Mv(MvArgs),
    /// Make symbolic links and further names of files in an unmounted volume.
    Ln(LnArgs),
    /// Change the permissions of files in an unmounted volume.
    Chmod(ChmodArgs),
    /// Change the owner and group of files in an unmounted volume.
    Chown(ChownArgs),
    /// Change the group of files in an unmounted volume.
    Chgrp(ChgrpArgs),
    /// Change the times of files in an unmounted volume; make files that do not exist.
    Touch(TouchArgs),
    /// Set the size of files in an unmounted volume.
    Truncate(TruncateArgs),
    /// Set or remove an extended attribute of files in an unmounted volume.
    Setfattr(SetfattrArgs),
    /// Print extended attributes of files in an unmounted volume.
    Getfattr(GetfattrArgs),
    /// Edit a file of an unmounted volume with $VISUAL or $EDITOR.
    Edit(EditArgs),
    /// Show the used and free space of unmounted volumes.
    Df(DfArgs),
    /// Pack files of an unmounted volume into a tar archive, or unpack one into the volume.
    Tar(TarArgs),
}

/// Arguments of `ls`.
#[derive(Debug, Args)]
#[command(after_help = PLACE, disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// Show names that begin with a dot, and . and .. (With --json names with a dot are always
    /// shown.)
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Show names that begin with a dot, but not . and ..
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Show directories themselves, not what is in them.
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// With -l, show sizes such as 1.5G, in powers of 1024.
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Show type, mode, links, owner, group, size and time (UTC).
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List subdirectories recursively.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Show one name a line. It is always so.
    #[arg(short = '1')]
    pub(crate) one: bool,
    #[command(flatten)]
    pub(crate) help: LongHelp,
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
