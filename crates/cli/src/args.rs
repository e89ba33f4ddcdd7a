//! The command line.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stetfs::low::{RecoverOptions, Source};

use crate::{ids, part};

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
   6  a device failed, or the volume was not closed clean
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

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where, such as /usr/local/share/man/man1. It is made if it is not there.
    pub(crate) dir: PathBuf,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which.
    pub(crate) shell: clap_complete::Shell,
}

/// What to do with a simulated device.
#[derive(Debug, Subcommand)]
pub(crate) enum Device {
    /// Serve one as a file, for loop devices and `stetfs mount`. Runs until it is interrupted or
    /// unmounted; needs root.
    Serve(DeviceServeArgs),
    /// Make a served device fail, or show how it does.
    Fault(DeviceFaultArgs),
}

/// Arguments of `device fault`.
#[derive(Debug, Args)]
pub(crate) struct DeviceFaultArgs {
    /// Where it is served.
    pub(crate) dir: PathBuf,
    /// What happens from now on, in words.
    #[arg(value_name = "WORD", long_help = FAULTS)]
    pub(crate) words: Vec<stetfs_flash::Word>,
}

const FAULTS: &str = "\
What happens from now on, in words:
  pass                      nothing fails
  drop-writes               writes, discards and flushes succeed and do nothing
  error-writes              they fail
  error-reads               reads fail
  error-all                 everything fails
  intervals=UP,DOWN         faults come and go: none for UP seconds, then DOWN seconds of them
  suspend, resume           requests wait; no longer
  power-cut=lose|keep|SEED  what was written since the last flush is lost, or not, or (by a seed) some
                            sectors of it; then everything fails until it is told to pass
Behind a fault's name =FIRST+COUNT limits it to sectors of 512 bytes. The faults of one call replace
those before. Without words: what is set.";

/// Arguments of `device serve`.
#[derive(Debug, Args)]
pub(crate) struct DeviceServeArgs {
    /// What requests cost: sata-ssd, nvme-ssd or disk. Without: what they take.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<stetfs_flash::Model>,
    /// An empty device of this size in memory, e.g. 4G.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, required_unless_present = "image")]
    pub(crate) size: Option<u64>,
    /// A file or block device that holds the content.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "ftl"])]
    pub(crate) image: Option<PathBuf>,
    /// With a cache that a power cut empties (`stetfs device fault DIR power-cut=…`).
    #[arg(long)]
    pub(crate) volatile: bool,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    /// Where: the device is the file `disk` in it, its counters the file `stats`, what makes it
    /// fail the file `control`.
    pub(crate) dir: PathBuf,
}

/// The flash of a served device.
#[derive(Debug, Args)]
pub(crate) struct FlashArgs {
    /// With simulated flash behind a translation layer: page (page-level mapping, and SHARE) or
    /// fast (log blocks). The model's times are then those of what it moves and erases, too.
    /// The content is in memory.
    #[arg(long, value_name = "NAME")]
    pub(crate) ftl: Option<stetfs_flash::ftl::FtlKind>,
    /// Percent of erase blocks beyond those that the size takes.
    #[arg(long, value_name = "PERCENT", default_value_t = 15, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) spare: u32,
    /// Bytes of an erase block, e.g. 24M.
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "ftl", value_parser = stetfs::low::size::bytes)]
    pub(crate) erase_block: u64,
    /// Every page is written once before it is served, then as many again, half in runs and half
    /// at random places.
    #[arg(long, requires = "ftl")]
    pub(crate) aged: bool,
    /// With a layer above the flash: log writes segments of 2 MiB one after the other, and cleans
    /// them.
    #[arg(long, value_name = "NAME", requires = "ftl", value_parser = ["log"])]
    pub(crate) layer: Option<String>,
    /// How that layer cleans: share, without copying where the flash can, or copy.
    #[arg(long, value_name = "HOW", default_value = "share", requires = "layer")]
    pub(crate) cleaner: stetfs_flash::segments::Cleaner,
    /// Pages of 4 KiB that it shares at once, 508 at most.
    #[arg(long, value_name = "N", default_value_t = 256, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=508))]
    pub(crate) share_pairs: u32,
    /// Places that one page may be in.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=508))]
    pub(crate) share_references: u32,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Compare mounted file systems: the same workloads on each, in interleaved rounds.
    Compare(Box<stetfs_bench::compare::CompareArgs>),
    /// Run a figure of a paper again, with the paper's numbers beside ours. Needs root.
    Figure(stetfs_bench::figure::FigureArgs),
    /// Age volumes: months of use, simulated, of StetFS and of the kernel's ext4, and then count
    /// extents and free runs.
    Age(stetfs_bench::age::AgeArgs),
}

/// What to do in the flash laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum Flash {
    /// Run a trace through a cache with each replacement policy, and what the cache writes through
    /// a flash device.
    Run(stetfs_flashlab::command::RunArgs),
    /// Record traces, look at them, and convert them.
    #[command(subcommand)]
    Trace(FlashTrace),
    /// Run a figure of the TS-CLOCK paper again, with the paper's numbers beside ours.
    Figure(stetfs_bench::flash::FlashFigureArgs),
}

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub(crate) enum FlashTrace {
    #[command(flatten)]
    Other(stetfs_flashlab::command::TraceCommand),
    /// Record what programs ask of a mounted volume: until Ctrl-C, for some time, or while a
    /// command runs.
    Record(RecordArgs),
}

/// Arguments of `flash trace record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Where it is mounted.
    pub(crate) dir: PathBuf,
    /// Where to: blocks of files that are read and written, as the requests come to the server,
    /// cached or not. What the kernel's page cache answers does not come to it; with the mount
    /// option direct_io all does.
    #[arg(short, long, value_name = "FILE", required_unless_present = "below")]
    pub(crate) out: Option<PathBuf>,
    /// Where to: what the volume's device is asked for, below the server's cache.
    #[arg(long, value_name = "FILE")]
    pub(crate) below: Option<PathBuf>,
    /// For so long.
    #[arg(long, value_name = "N", conflicts_with = "command", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Runs this, and records until it ends. Its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What to show.
#[derive(Debug, Subcommand)]
pub(crate) enum Dump {
    /// The journal, record by record.
    Journal(DumpJournalArgs),
}

/// Arguments of `dump journal`.
#[derive(Debug, Args)]
pub(crate) struct DumpJournalArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// Draw the transactions into this file, as SVG, instead of telling the records.
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
}

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
    /// An ext4 image file or block device.
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
  idmap                     the mount can be mapped to other ids (Linux 6.12)
  fakeroot                  who mounts is root in the volume, and root's files are shown as his
  noxattr                   neither extended attributes nor ACLs
  nosuid, nodev, noexec     as for mount(8)
  remount                   change ro, rw, commit and access times of a mount";

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

/// What to do with an image.
#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Make an Android sparse image, for fastboot and simg2img.
    Sparse(SparseArgs),
    /// Make a plain image of an Android sparse one, which then can be written.
    Unsparse(UnsparseArgs),
}

/// Arguments of `image sparse`.
#[derive(Debug, Args)]
pub(crate) struct SparseArgs {
    /// A plain image.
    pub(crate) image: PathBuf,
    /// The sparse image, which must not be there yet.
    pub(crate) sparse: PathBuf,
    /// Bytes of its blocks.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = stetfs::low::size::bytes)]
    pub(crate) block_size: u64,
    /// Leave out blocks of zeroes and holes (don't care) instead of filling them with zeroes: for
    /// a target that is known to be empty.
    #[arg(long)]
    pub(crate) skip_zeroes: bool,
}

/// Arguments of `image unsparse`.
#[derive(Debug, Args)]
pub(crate) struct UnsparseArgs {
    /// An Android sparse image.
    pub(crate) sparse: PathBuf,
    /// The plain image, which must not be there yet.
    pub(crate) image: PathBuf,
}

/// Arguments of `freeze` and `thaw`.
#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// Where it is mounted.
    pub(crate) dir: PathBuf,
}

/// Arguments of `quota`.
#[derive(Debug, Args)]
pub(crate) struct QuotaArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// Whose limits are set, such as user:1000, user:alice, group:100 or project:5. Those that are
    /// not given are none.
    #[arg(long, value_name = "KIND:ID", value_parser = quota_id)]
    pub(crate) set: Option<(stetfs::low::QuotaKind, u32)>,
    /// Space that is never exceeded.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space: Option<u64>,
    /// Space that is exceeded for the grace time only.
    #[arg(long, value_name = "SIZE", value_parser = stetfs::low::size::bytes, requires = "set")]
    pub(crate) space_soft: Option<u64>,
    /// Inodes that are never exceeded.
    #[arg(long, value_name = "N", requires = "set")]
    pub(crate) inodes: Option<u64>,
    /// Inodes that are exceeded for the grace time only.
    #[arg(long, value_name = "N", requires = "set")]
    pub(crate) inodes_soft: Option<u64>,
}

fn quota_id(text: &str) -> Result<(stetfs::low::QuotaKind, u32), String> {
    let (name, id) = text.split_once(':').unwrap_or_default();
    let kind = stetfs::low::QuotaKind::ALL
        .into_iter()
        .find(|k| k.name() == name);
    let kind = kind.ok_or("must be user:ID, group:ID or project:ID, or a name in place of ID")?;
    let number = id.parse().ok().or_else(|| ids::number(name, id));
    match number {
        Some(id) => Ok((kind, id)),
        None => Err(format!("there is no {name} {id:?} here: give the number")),
    }
}

/// A volume that is not mounted.
#[derive(Debug, Args)]
pub(crate) struct VolumeArg {
    /// An ext4 image file or block device.
    pub(crate) volume: PathBuf,
    /// Where the volume is in it, separated by commas: partition=N|NAME|UUID, or offset=BYTES and
    /// size=BYTES; journal_path=PATH, where the journal is, on a volume with it on another
    /// device; nvm=PATH, where records of synced files are, of one that was mounted so.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
}

impl VolumeArg {
    /// Where it is.
    pub(crate) fn source(&self) -> crate::failure::Result<Source> {
        part::source(self.volume.clone(), &self.options)
    }
}

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) volume: VolumeArg,
    /// What it is for.
    #[arg(long = "for", value_name = "USE", value_enum, default_value_t)]
    pub(crate) program: crate::cmd::advise::Use,
}

/// Arguments of `certify`.
#[derive(Debug, Args)]
pub(crate) struct CertifyArgs {
    /// An ext4 image file or block device, or the directory of a mount.
    pub(crate) volume: PathBuf,
    /// Options of a volume that is not mounted, as for `stetfs mount`: with which it is tried.
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// How long is measured and tried, about.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub(crate) seconds: f64,
    /// What is drawn at random comes from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the page there, as HTML.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Arguments of `recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// An ext4 image file or block device.
    pub(crate) volume: PathBuf,
    /// Separated by commas: home=share, to have the device share what is logged to its home, where
    /// it can, instead of writing it there (home=copy); and where the volume and its journal
    /// are (partition=N|NAME|UUID, or offset=BYTES and size=BYTES; journal_path=PATH, nvm=PATH,
    /// nvm_offset=BYTES, nvm_size=BYTES).
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Of a damaged journal, bring home what is whole and leave out the rest; run e2fsck -f
    /// afterwards.
    #[arg(long)]
    pub(crate) salvage: bool,
    /// The file of nvm= is lost, and its records of synced files with it: bring the volume to its
    /// last commit.
    #[arg(long)]
    pub(crate) without_nvm: bool,
}

impl RecoverArgs {
    /// Where the volume is, and how it is recovered.
    pub(crate) fn read(&self) -> crate::failure::Result<(Source, RecoverOptions)> {
        let mut how = RecoverOptions {
            salvage: self.salvage,
            without_nvm: self.without_nvm,
            ..RecoverOptions::default()
        };
        let take = &mut |name: &str, value: &str| {
            let journal = how.journal.with(name, value).map_err(|bad| bad.0)?;
            how.journal = journal;
            Ok(())
        };
        let source = part::source_and(self.volume.clone(), &self.options, &["home"], take)?;
        Ok((source, how))
    }
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
