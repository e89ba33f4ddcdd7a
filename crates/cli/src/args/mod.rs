//! The command line.

mod device;
mod image;
mod measure;
mod mount;
mod package;
mod volume;

pub(crate) use device::{Device, DeviceFaultArgs, DeviceServeArgs, FlashArgs};
pub(crate) use image::{Image, SparseArgs, UnsparseArgs};
pub(crate) use measure::{Bench, Flash, FlashTrace, RecordArgs};
pub(crate) use mount::{Atomic, FreezeArgs, MountArgs, StatArgs, UmountArgs};
pub(crate) use package::{CompletionsArgs, ManArgs};
pub(crate) use volume::{
    AdviseArgs, CertifyArgs, Dump, DumpJournalArgs, QuotaArgs, RecoverArgs, VolumeArg,
};

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// With the commit that was built, where that is known.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("STETFS_COMMIT"));

/// Ext4 in user space, with journals that keep what was synced.
#[derive(Debug, Parser)]
#[command(name = "stetfs", version = VERSION, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Answer in JSON, one object on standard output; errors too.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  wrong arguments, or not permitted
   2  the system lacks something (FUSE, fusermount3)
   3  there is no such volume, mount or file
   4  the volume or the mount is in use
   5  the volume is damaged or of an unknown kind
   6  a device failed, the volume or its host is full, or the volume was not closed clean
   7  a crash broke a promise (stetfs crash), or something is against the volume (certify)
   8  recovered in part: e2fsck -f has to do the rest
  32  mounting failed for another reason
 130  interrupted (Ctrl-C); what was running is taken down";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a volume.
    Mount(MountArgs),
    /// Unmount, and wait until the volume is clean.
    Umount(UmountArgs),
    /// Bring home what the journal of an unmounted volume holds, and mark it clean.
    Recover(RecoverArgs),
    /// Describe an unmounted volume: features, sizes, journal, what recovery would do.
    Info(VolumeArg),
    /// Say how a volume, or the mount at a directory, is best mounted for a program, and what of
    /// the volume and the machine is in the way. Changes nothing.
    Advise(AdviseArgs),
    /// Try whether a volume, or the mount at a directory, keeps its promises here, and write a page
    /// about it: what is below it, what syncs cost, what an error of the device and what power cuts
    /// do. Changes nothing of a volume; on a mount, makes files and removes them.
    Certify(CertifyArgs),
    /// Show usage and limits of users, groups and projects of an unmounted volume, or of the mount
    /// at a directory; or set limits.
    Quota(QuotaArgs),
    /// Show structures of an unmounted volume.
    #[command(subcommand)]
    Dump(Dump),
    #[command(flatten)]
    Files(crate::files::args::FilesCommand),
    /// Show the live counters of a mounted volume, and how long its requests take.
    Stat(StatArgs),
    /// Bring everything of a mounted volume home, and hold changes back until `stetfs thaw`: the
    /// image or device can be copied meanwhile, and is as after an unmount. Reads go on.
    Freeze(FreezeArgs),
    /// Let changes of a frozen volume go on.
    Thaw(FreezeArgs),
    /// Make all of a mounted volume durable, also where sync and syncfs(2) do not reach it.
    Sync(FreezeArgs),
    /// Files of a mount that are written atomically.
    #[command(subcommand)]
    Atomic(Atomic),
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
    /// Try what power cuts can leave behind, and judge it.
    #[command(subcommand)]
    Crash(Box<stetfs_crash::command::CrashCommand>),
    /// Make an Android sparse image of a plain one, and the other way round.
    #[command(subcommand)]
    Image(Image),
    /// Simulated devices.
    #[command(subcommand)]
    Device(Device),
    /// Run traces through page caches and simulated flash.
    #[command(subcommand)]
    Flash(Flash),
    /// Write manual pages, one a command.
    Man(ManArgs),
    /// Print what makes a shell complete the arguments of stetfs.
    Completions(CompletionsArgs),
}

/// What mount(8) gives a helper (`mount.fuse.stetfs SOURCE DIR [-sfnv] [-N NS] [-o OPTIONS] [-t
/// TYPE]`).
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.stetfs", version = VERSION)]
pub(crate) struct HelperArgs {
    pub(crate) source: PathBuf,
    pub(crate) dir: PathBuf,
    /// Pass over unknown options.
    #[arg(short)]
    pub(crate) sloppy: bool,
    /// Only pretend.
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
        Cli::command().debug_assert();
        HelperArgs::command().debug_assert();
    }
}
