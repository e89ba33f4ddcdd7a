//! Mounts: made, looked at, held, and ended.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::volume::VOLUME;

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Stay in the foreground.
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Where messages go, behind what is there, instead of to syslog or the terminal; the same as
    /// -o log_file=PATH.
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,
    /// Options, separated by commas.
    #[arg(short, value_name = "OPTIONS", long_help = mount_options())]
    pub(crate) options: Vec<String>,
    #[arg(help = VOLUME)]
    pub(crate) source: PathBuf,
    /// Where.
    pub(crate) dir: PathBuf,
    /// This is the server, started by the process of that number: it reports on standard output,
    /// and in the background then detaches.
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) server: Option<i32>,
}

const OPTIONS: &str = "\
Options, separated by commas:
  ro, rw                    read only, or not
  commit=SECONDS            longest time until a change is committed by itself (5)
  dirty_expire=SECONDS      age at which file data that nobody synced is written by itself (30)
  cache=SIZE                memory for the cache, e.g. 512M (an eighth of it all, 64M to 1G)
  cache_policy=NAME         who leaves the cache: clock, or another of `stetfs flash run` (clock)
  erase_block=SIZE          of the device, for policies that go by erase blocks (4M)
  relatime, noatime, strictatime, nodiratime
                            how access times are kept
  lazytime                  access times are written with the next sync only
  discard                   tell the device of blocks when they become free
  errors=continue|remount-ro|panic
                            what to do when damage is found (as the volume says)
  data_err=ignore|abort     what to do when file data cannot be written: tell who syncs the file, or
                            stop the volume (ignore)
  sync, dirsync             every write, or change of names, is durable when it returns
  norecovery, noload        do not replay the journal (with ro)
  epoch=SECONDS             all times are this one and nothing is left to chance: an image made again is the same
  journal_path=PATH         where the journal is, on a volume with it on another device
  nvm=PATH                  file for records of synced files (with sync=file), in persistent memory or what stands in
                            for it: syncs wait for no device
  nvm_offset=BYTES, nvm_size=BYTES  which part of that file it is: several volumes share one
  partition=N|NAME|UUID     which partition of an image or a disk with a partition table it is
  offset=BYTES, size=BYTES  which part of an image or a disk it is (all of it)
  nbd_connections=N         of nbd:// addresses: connections, where there may be several (4)
  nbd_reconnect=SECONDS     of nbd:// addresses: how long a lost server is looked for (60)
  nbd_answer=SECONDS        of nbd:// addresses: how long an answer may take; 0: as long as it takes (180)
  nobarrier, barrier=0      no flushes: fast, and not safe against power failure
  journal_async_commit      commit blocks do not wait for the log before them
  allow_other, noallow_other
                            whether other users may use it (yes for root)
  io_uring=auto|on|off      take requests through io_uring (auto)
  low_latency=auto|on|off   keep processors from sleeping while requests come one after another (auto)
  sandbox=auto|on|off       the server gives away what it does not need, as far as this system goes along,
                            or all of it (auto)
  log_file=PATH             where messages go, behind what is there (in the background syslog)
  threads=N                 threads that take requests (the cores and a few)
  opens=stateless|handles   files are opened and closed without a request, or each open gets a handle
                            (stateless; with direct_io, writeback_cache or atomic handles)
  direct_io                 files pass the kernel's page cache by
  writeback_cache           the kernel holds written data back
  atomic                    files can be written atomically, as SQLite does; needs a journal that data goes through
  atomic_timeout=SECONDS    an atomic write without a change for so long is aborted; 0: never (60)
  idmap                     the mount can be mapped to other ids (Linux 6.12)
  fakeroot                  who mounts is root in the volume, and root's files are shown as his
  noxattr                   neither extended attributes nor ACLs
  nosuid, nodev, noexec, nosymfollow
                            as for mount(8)
  remount                   change a mount in place: all but the partition, nvm=, log_file= and what the server and
                            the connection to the kernel are made with (threads, io_uring, opens, sandbox and the like)";

/// What `-o` takes: what is said of the journal comes from those that make journals.
fn mount_options() -> String {
    let mut text = OPTIONS.to_owned();
    text.push_str("\n\nThe journal:\n");
    let mut entry = |usage: &str, help: &[String]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {usage}");
        for line in help {
            let _ = writeln!(text, "                            {line}");
        }
    };
    let mut presets =
        vec!["a preset, that is, a name for some of the options below (ordered)".into()];
    let all = stetfs::low::Preset::all();
    let custom = stetfs::low::preset::CUSTOM;
    for preset in all.iter().chain([&custom]) {
        presets.push(format!("{preset}: {}", preset.help()));
    }
    entry("journal=NAME", &presets);
    for option in stetfs::low::options_help() {
        entry(&option.usage, &option.help);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Arguments of `umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Take it out of the name space now, and do not wait for its last users.
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// Where it is mounted, or the volume.
    pub(crate) dir: PathBuf,
}

/// Arguments of `freeze`, `thaw` and `sync`.
#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// Where it is mounted.
    pub(crate) dir: PathBuf,
}

/// Commands of `atomic`.
#[derive(Debug, Subcommand)]
pub(crate) enum Atomic {
    /// End the atomic write of a file, whoever began it: the file, and all others of its group, are
    /// as they were before, and the program is told. For the owner of the file, and root.
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
    /// Where it is mounted. With --prometheus there can be several, and without any it is all
    /// mounts.
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// In Prometheus' text format, for the node exporter's textfile collector or whatever scrapes.
    #[arg(long)]
    pub(crate) prometheus: bool,
    /// Again and again, each step with what happened in it, until Ctrl-C or the end of the mount:
    /// in place on a terminal, else one line a step. A step is a second unless a number of
    /// them is said.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, conflicts_with = "prometheus")]
    pub(crate) watch: Option<Option<OsString>>,
}
