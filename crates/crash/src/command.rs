//! The command line of `stetfs crash`.

mod beside;
mod recorded;
mod search;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Subcommand, ValueEnum};

pub use crate::answer::Answer;
use crate::canary::command::CanariesArgs;
use crate::explore::{Config, Often};
use crate::layers::Layer;
use crate::peers::cut_command::CutArgs;
use crate::peers::{Binary, Limits, System};
use crate::setup::{JournalSpec, Shape};
use crate::state::StateId;
use crate::stress::command::StressArgs;
use crate::swarm::command::SwarmArgs;
use crate::volume::Batches;
use crate::workload::{Case, cases, named, text};

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum CrashCommand {
    /// Record a workload, try the crashes that could have been, judge what each leaves.
    Run(RunArgs),
    /// Only record: the writes, flushes, and what the workload was told.
    Record(RecordArgs),
    /// Try the crashes of a record.
    Explore(ExploreArgs),
    /// Judge one crash of a record again, by all oracles.
    Repeat(RepeatArgs),
    /// Describe a record.
    Report(ReportArgs),
    /// StetFS beside the kernel's file systems: what their crashes lose. Needs root.
    Compare(CompareArgs),
    /// Crashes of the kernel's ext4, recovered by StetFS, e2fsck and the kernel, side by side.
    /// Needs root.
    Foreign(ForeignArgs),
    /// Cut the power under a program of yours: what it does on a mount is recorded, and a command
    /// of yours judges what each crash leaves. Needs root.
    Cut(CutArgs),
    /// Let the device misbehave, and see that nothing is silently wrong that checksums cover.
    Faults(FaultsArgs),
    /// Many threads at work, then a kill, a failing device or a power cut: nothing acknowledged is
    /// lost.
    Stress(StressArgs),
    /// Draw everything: volumes, features, journals, threads, operations and faults, so that every
    /// pair of them meets.
    Swarm(SwarmArgs),
    /// Put deliberate faults into the journal, and see that each is found.
    Canaries(CanariesArgs),
}

/// The volume and the work.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// The journal: a preset, and options.
    #[arg(long, value_name = "PRESET[,OPTION…]", default_value = "ordered", long_help = journal_help())]
    journal: JournalSpec,
    /// What is done: a workload's name, or a file with a script.
    #[arg(long, value_name = "NAME|FILE", default_value = "smoke", long_help = workload_help())]
    workload: String,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes in a block: 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    block: u32,
    /// Blocks of the journal.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    journal_blocks: u32,
    /// What a crash leaves of a batch that the device shares (`home=share`) and has not flushed.
    #[arg(long, value_enum, default_value_t)]
    share: Batches,
    /// The device has FUA: what goes out with it is durable at once.
    #[arg(long)]
    fua: bool,
    /// Records of files go to a region of persistent memory of so many bytes, such as 64K, and
    /// crashes cut it, too. The journal has to have such records (`ijournal`, `sync=file`).
    #[arg(long, value_name = "BYTES", value_parser = stetfs::low::size::bytes)]
    region: Option<u64>,
}

impl WorkArgs {
    fn shape(&self) -> Shape {
        Shape {
            block: self.block,
            journal_blocks: self.journal_blocks,
            batches: self.share,
            fua: self.fua,
            region: self.region,
        }
    }

    /// The only case of a workload, of another seed.
    fn case_of(&self, seed: u64) -> Result<Case> {
        cases(&self.workload, seed)?
            .pop()
            .context("a workload without a case")
    }

    /// The one case to record; `case` chooses of a family.
    fn case(&self, case: Option<usize>) -> Result<Case> {
        let mut all = cases(&self.workload, self.seed)?;
        let count = all.len();
        let i = match (case, count) {
            (Some(i), _) => i,
            (None, 1) => 0,
            (None, n) => {
                return Err(anyhow!(
                    "{} has {n} cases: choose one with --case 0 to {}, or try all with `stetfs crash run`",
                    self.workload,
                    n - 1
                ));
            }
        };
        ensure!(i < count, "{} has {count} cases", self.workload);
        Ok(all.swap_remove(i))
    }
}

/// How e2fsck is used.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FsckArg {
    /// Never.
    Never,
    /// On some images.
    Sample,
    /// On every image.
    Always,
}

/// How to search.
#[derive(Clone, Debug, Args)]
pub struct SearchArgs {
    /// How long to search.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// Stop after so many passes, even if there is time.
    #[arg(long, value_name = "N")]
    passes: Option<u64>,
    /// States that are judged at once (the cores).
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// When e2fsck looks at a recovered image.
    #[arg(long, value_enum, default_value = "sample")]
    fsck: FsckArg,
    /// Stop at so many failures.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Go on where an earlier search stopped, and keep here how far this one is.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Where the records and reports of failures go [default: stetfs-crash, made when there is
    /// one].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not look for the shortest workload and the smallest loss.
    #[arg(long)]
    no_shrink: bool,
    /// With --json: the file for the JSON, instead of standard output.
    #[arg(value_name = "FILE")]
    json_file: Option<PathBuf>,
}

impl SearchArgs {
    fn config(&self, seed: u64) -> Result<Config> {
        ensure!(
            self.seconds.is_finite() && self.seconds > 0.0,
            "--seconds must be above 0"
        );
        let defaults = Config::default();
        Ok(Config {
            seed,
            threads: self.threads.unwrap_or(defaults.threads).clamp(1, 1024),
            seconds: Some(self.seconds),
            passes: self.passes,
            failures: self.failures.max(1),
            fsck: match self.fsck {
                FsckArg::Never => Often::Never,
                FsckArg::Sample => defaults.fsck,
                FsckArg::Always => Often::Always,
            },
            bar: true,
            ..defaults
        })
    }
}

/// Arguments of `crash run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Each flush of the device fails in turn, in a record of its own: what was written since the
    /// last good one may be lost, and nothing is acknowledged any more.
    #[arg(long)]
    fail_flushes: bool,
    /// With a translation layer of simulated flash below the volume, whose power is cut: page (a
    /// page-level SSD), fast (FAST, as on cards) or log (a log of segments on such an SSD).
    /// Blocks of a volume may be smaller than the flash's pages.
    #[arg(long, value_enum, value_name = "LAYER", conflicts_with_all = ["fail_flushes", "resume", "passes", "no_shrink", "region"])]
    device: Option<Layer>,
    #[command(flatten)]
    search: SearchArgs,
}

/// Arguments of `crash record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Which case, of a workload with several.
    #[arg(long, value_name = "N")]
    case: Option<usize>,
    /// The file to make.
    record: PathBuf,
}

/// Arguments of `crash explore`.
#[derive(Clone, Debug, Args)]
pub struct ExploreArgs {
    /// A file made by `crash record`.
    record: PathBuf,
    /// Decides everything that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    search: SearchArgs,
}

/// Arguments of `crash repeat`.
#[derive(Clone, Debug, Args)]
pub struct RepeatArgs {
    /// A file made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// The crash, as a failure names it, e.g. 120:~7.
    #[arg(allow_hyphen_values = true)]
    state: StateId,
    /// Keep the image that the crash left, and beside it its region, if it has one, with the
    /// extension `region`.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Look for the shortest workload and the smallest loss, for so many seconds.
    #[arg(long, value_name = "SECONDS")]
    shrink: Option<f64>,
}

/// Arguments of `crash compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// stetfs:PRESET, ext4:MOUNT-OPTIONS, xfs or btrfs.
    #[arg(value_name = "SYSTEM", default_values = ["stetfs:ordered", "stetfs:data", "ext4:data=ordered", "ext4:data=journal"])]
    systems: Vec<System>,
    /// A workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
    /// maildir, tar.
    #[arg(short, long = "workload", value_name = "NAME|FILE", default_values = ["smoke"])]
    workloads: Vec<String>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    stetfs: Binary,
}

/// Arguments of `crash foreign`.
#[derive(Clone, Debug, Args)]
pub struct ForeignArgs {
    /// Features of the volume, as for mke2fs.
    #[arg(
        short = 'O',
        long,
        value_name = "FEATURE,…",
        default_value = "fast_commit"
    )]
    features: String,
    /// Mount options.
    #[arg(short, long, value_name = "OPTION,…", default_value = "")]
    options: String,
    /// Keep the images of examples in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Bytes in a block.
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    block: u32,
    /// A workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
    /// maildir, tar.
    #[arg(short, long = "workload", value_name = "NAME|FILE", default_values = ["random"])]
    workloads: Vec<String>,
    #[command(flatten)]
    limits: Limits,
}

/// Arguments of `crash faults`.
#[derive(Clone, Debug, Args)]
pub struct FaultsArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// Volumes with each fault.
    #[arg(long, value_name = "N", default_value_t = 200)]
    each: u64,
}

/// Arguments of `crash report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// A file made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// A crash of it to describe.
    #[arg(allow_hyphen_values = true, requires = "html")]
    state: Option<StateId>,
    /// With a crash: the page to write, with the log, what was lost, and the trees.
    #[arg(long, value_name = "FILE", requires = "state")]
    html: Option<PathBuf>,
}

fn journal_help() -> String {
    format!(
        "The journal: a preset, and options: {}",
        crate::setup::OPTIONS
    )
}

fn workload_help() -> String {
    let names = named::NAMES.map(|(n, what)| format!("  {n:10}  {what}"));
    format!(
        "What is done: one of\n{}\nor a file with a script, one operation a line:\n{}",
        names.join("\n"),
        text::SYNTAX
    )
}

impl CrashCommand {
    /// Does it.
    ///
    /// # Errors
    /// What is wrong with the arguments or the files, and what to do about it. Broken promises are
    /// no errors.
    pub fn run(&self) -> Result<Answer> {
        match self {
            CrashCommand::Run(args) => args.run(),
            CrashCommand::Record(args) => args.run(),
            CrashCommand::Explore(args) => args.run(),
            CrashCommand::Repeat(args) => args.run(),
            CrashCommand::Report(args) => args.run(),
            CrashCommand::Stress(args) => args.run(),
            CrashCommand::Swarm(args) => args.run(),
            CrashCommand::Canaries(args) => args.run(),
            CrashCommand::Faults(args) => args.run(),
            CrashCommand::Compare(args) => args.run(),
            CrashCommand::Foreign(args) => args.run(),
            CrashCommand::Cut(args) => args.run(),
        }
    }
}
