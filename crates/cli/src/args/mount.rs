//! The arguments of the commands on mounts: mount, unmount, freeze, sync, `atomic` and `stat`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::volume::VOLUME;
use crate::files::args::Opening;
use crate::options::mount_options;

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Stay in the foreground.
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Append messages to this file, instead of syslog or the terminal; the same as -o
    /// log_file=PATH. Each line names the volume and the process; repeated lines are joined.
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// Options, separated by commas.
    #[arg(short, value_name = "OPTIONS", long_help = mount_options())]
    pub(crate) options: Vec<String>,
    #[arg(help = VOLUME)]
    pub(crate) source: PathBuf,
    /// The directory to mount on.
    pub(crate) dir: PathBuf,
    /// This process is the server, started by the process of that number: it reports on standard
    /// output, and in the background then detaches.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) server: Option<i32>,
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Detach the mount now, and do not wait until its last user is gone.
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// The directory of the mount, or the volume.
    pub(crate) dir: PathBuf,
}

/// Arguments of `freeze`, `thaw` and `sync`.
#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// The directory of the mount, or the volume.
    pub(crate) dir: PathBuf,
}

/// Commands of `atomic`.
#[derive(Debug, Subcommand)]
pub(crate) enum Atomic {
    /// Abort the atomic write of a file, whichever program began it: the file, and all others of
    /// its group, are as they were before, and the program gets an error. For the owner of the
    /// file, and root.
    Abort(AtomicAbortArgs),
}

/// Arguments of `atomic abort`.
#[derive(Debug, Args)]
pub(crate) struct AtomicAbortArgs {
    /// The file, on a mount.
    pub(crate) file: PathBuf,
}

/// Arguments of `stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// The directory of the mount, or the volume. With --prometheus, any number; without any, all
    /// mounts. IMAGE:/PATH is a file in an unmounted volume, whose attributes are shown as stat(1)
    /// shows them, in UTC, with the names of the volume's own /etc/passwd and /etc/group.
    #[arg(value_name = "DIR|IMAGE:/PATH")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Of a file: print this format, with the sequences of stat(1), such as '%a %U %n'.
    #[arg(short = 'c', long, value_name = "FORMAT", conflicts_with_all = ["prometheus", "watch"])]
    pub(crate) format: Option<String>,
    /// Of a file: follow symbolic links.
    #[arg(short = 'L', long, conflicts_with_all = ["prometheus", "watch"])]
    pub(crate) dereference: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    /// Print Prometheus' text format, for the textfile collector of the node exporter or another
    /// scraper.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Repeat, each step with the changes since the last one, until Ctrl-C or the end of the mount:
    /// in place on a terminal, else one line a step. A step is a second unless a number of seconds
    /// is given.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, conflicts_with = "prometheus")]
    pub(crate) watch: Option<Option<OsString>>,
}
