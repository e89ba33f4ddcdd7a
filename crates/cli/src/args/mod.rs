//! The command line: the root command and its subcommands, as clap reads them.

mod image;
mod mkfs;
mod mount;
mod package;
mod volume;

pub(crate) use image::{Image, SparseArgs, UnsparseArgs};
pub(crate) use mkfs::{MkfsArgs, NewVolume, owner};
pub(crate) use mount::{Atomic, FreezeArgs, MountArgs, StatArgs, UmountArgs};
pub(crate) use package::{CompletionsArgs, ManArgs};
pub(crate) use volume::{AdviseArgs, Dump, DumpJournalArgs, QuotaArgs, RecoverArgs, VolumeArg};

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::more::More;

/// The version, with the commit that was built where that is known.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("STETFS_COMMIT"));

/// Ext4 in user space, with journals that keep what was synced.
#[derive(Debug, Parser)]
#[command(name = "stetfs", version = VERSION, after_help = notes::<M>())]
pub(crate) struct Cli<M: More> {
    /// Print one JSON object on standard output, also for errors.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command<M>,
}

/// The text below the help.
fn notes<M: More>() -> String {
    match M::ELSEWHERE {
        true => format!("{APART}\n\n{EXIT_CODES}"),
        false => EXIT_CODES.to_owned(),
    }
}

const APART: &str = "\
bench, certify, crash, device and flash are the laboratory, a program and a package of its own: \
stetfs-lab.";

const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  wrong arguments, or not permitted
   2  the system lacks something (FUSE, fusermount3, stetfs-lab)
   3  there is no such volume, mount or file
   4  the volume or the mount is in use
   5  the volume is damaged or of an unknown kind
   6  a device failed, the volume or its host is full, or the volume was not closed clean
   7  a crash broke a promise (stetfs crash), or something is against the volume (certify)
   8  recovered in part: e2fsck -f has to do the rest
  32  mounting failed for another reason
 130  interrupted (Ctrl-C); what was running is taken down";

/// The commands of `stetfs`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command<M: More> {
    /// Make a new ext4 volume, in a new or an existing file or on a device.
    Mkfs(MkfsArgs),
    /// Mount a volume.
    Mount(MountArgs),
    /// Unmount, and wait until the volume is clean.
    Umount(UmountArgs),
    /// Replay the journal of an unmounted volume, and mark the volume clean.
    Recover(RecoverArgs),
    /// Describe an unmounted volume: features, sizes, journal, what recovery would do.
    Info(VolumeArg),
    /// Recommend how to mount a volume for a program, and list what in the volume or the machine is
    /// in the way. Takes an image, a device or the directory of a mount. Changes nothing.
    Advise(AdviseArgs),
    /// Show usage and limits of users, groups and projects, or set limits, on an unmounted volume
    /// or the mount at a directory.
    Quota(QuotaArgs),
    /// Show structures of an unmounted volume.
    #[command(subcommand)]
    Dump(Dump),
    #[command(flatten)]
    Files(crate::files::args::FilesCommand),
    /// Show the live counters of a mounted volume and the latencies of its requests; of a file in
    /// an unmounted volume, its attributes.
    Stat(StatArgs),
    /// Write everything of a mounted volume back, and hold changes until `stetfs thaw`. Meanwhile
    /// the image or device can be copied, and is as after an unmount. Reads continue.
    Freeze(FreezeArgs),
    /// Resume changes of a frozen volume.
    Thaw(FreezeArgs),
    /// Make all changes of a mounted volume durable, also where sync and syncfs(2) do not reach it.
    Sync(FreezeArgs),
    /// Manage files of a mount that are written atomically.
    #[command(subcommand)]
    Atomic(Atomic),
    /// Make images with content; convert between plain and Android sparse images.
    #[command(subcommand)]
    Image(Image),
    #[command(flatten)]
    More(M),
    /// Write manual pages, one for each command.
    Man(ManArgs),
    /// Print a shell's completion script for stetfs.
    Completions(CompletionsArgs),
}

/// The arguments that mount(8) passes to a helper (`mount.fuse.stetfs SOURCE DIR [-sfnv] [-N NS]
/// [-o OPTIONS] [-t TYPE]`).
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.stetfs", version = VERSION)]
pub(crate) struct HelperArgs {
    pub(crate) source: PathBuf,
    pub(crate) dir: PathBuf,
    /// Ignore unknown options.
    #[arg(short)]
    pub(crate) sloppy: bool,
    /// Do everything but the mount itself.
    #[arg(short)]
    pub(crate) fake: bool,
    #[arg(short = 'n')]
    pub(crate) _no_mtab: bool,
    #[arg(short = 'v')]
    pub(crate) _verbose: bool,
    #[arg(short = 'N')]
    pub(crate) _namespace: Option<String>,
    #[arg(short = 't')]
    pub(crate) _fstype: Option<String>,
    #[arg(short)]
    pub(crate) options: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_hold_together() {
        Cli::<crate::Laboratory>::command().debug_assert();
        HelperArgs::command().debug_assert();
    }
}
