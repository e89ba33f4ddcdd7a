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

/// The subcommand to run.
#[derive(Clone, Debug, Subcommand)]
pub enum CrashCommand {
    /// Record a workload, try the crashes that its recording allows, and judge each result.
    Run(RunArgs),
    /// Record a workload: its writes, its flushes, and the answers that it got.
    Record(RecordArgs),
    /// Try the crashes of a recording.
    Explore(ExploreArgs),
    /// Judge one crash of a recording again, by all oracles.
    Repeat(RepeatArgs),
    /// Describe a recording.
    Report(ReportArgs),
    /// Compare what crashes of StetFS and of the kernel's file systems lose. Needs root.
    Compare(CompareArgs),
    /// Crash the kernel's ext4 and compare the recoveries of StetFS, e2fsck and the kernel. Needs
    /// root.
    Foreign(ForeignArgs),
    /// Record a program of yours on a mount, cut the power, and have a command of yours judge the
    /// result of each crash. Needs root.
    Cut(CutArgs),
    /// Make the device misbehave, and check that no damage that checksums cover goes unnoticed.
    Faults(FaultsArgs),
    /// Run many threads, then kill the process, fail the device or cut the power: no acknowledged
    /// change may be lost.
    Stress(StressArgs),
    /// Draw volumes, features, journals, threads, operations and faults at random, so that every
    /// pair of them meets.
    Swarm(SwarmArgs),
    /// Plant deliberate faults in the journal, and check that each is found.
    Canaries(CanariesArgs),
}

/// Options for the volume and the workload.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    /// Journal to test: a preset, and options.
    #[arg(long, value_name = "PRESET[,OPTION…]", default_value = "ordered", long_help = journal_help())]
    journal: JournalSpec,
    /// Workload to run: a name, or a file with a script.
    #[arg(long, value_name = "NAME|FILE", default_value = "smoke", long_help = workload_help())]
    workload: String,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of a block in bytes: 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    block: u32,
    /// Size of the journal, in blocks.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    journal_blocks: u32,
    /// Part that a crash keeps of a batch that the device shared (`home=share`) and has not
    /// flushed.
    #[arg(long, value_enum, default_value_t)]
    share: Batches,
    /// Give the device FUA: a write with FUA is durable at once.
    #[arg(long)]
    fua: bool,
    /// Write the sync records of files to a region of persistent memory of this size, such as 64K,
    /// and cut it in crashes, too. Needs a journal with sync records of files (`ijournal`,
    /// `sync=file`).
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

    /// The only case of a workload, with another seed.
    fn case_of(&self, seed: u64) -> Result<Case> {
        cases(&self.workload, seed)?
            .pop()
            .context("the workload has no cases")
    }

    /// The one case to record; `case` chooses one of a workload that has several.
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

/// The use of e2fsck.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FsckArg {
    /// Never.
    Never,
    /// On some images.
    Sample,
    /// On every image.
    Always,
}

/// Options for the search.
#[derive(Clone, Debug, Args)]
pub struct SearchArgs {
    /// Duration of the search, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// Stop after this many passes, even if time is left.
    #[arg(long, value_name = "N")]
    passes: Option<u64>,
    /// States to judge at once [default: the number of cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// When to run e2fsck on a recovered image.
    #[arg(long, value_enum, default_value = "sample")]
    fsck: FsckArg,
    /// Stop at this many failures.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Continue the search saved in this file, and save its progress there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Directory for the recordings and reports of failures [default: stetfs-crash, created at the
    /// first failure].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not search for the shortest workload and the smallest loss.
    #[arg(long)]
    no_shrink: bool,
    /// With --json: file for the JSON, instead of standard output.
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
    /// Fail each flush of the device in turn, in a recording of its own: data written since the
    /// last good flush may be lost, but nothing may be acknowledged any more.
    #[arg(long)]
    fail_flushes: bool,
    /// Put a simulated flash translation layer below the volume and cut its power: page (a
    /// page-level SSD), fast (FAST, as on cards) or log (a log of segments on such an SSD). Blocks
    /// of a volume may be smaller than the flash's pages.
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
    /// Case to record, of a workload with several.
    #[arg(long, value_name = "N")]
    case: Option<usize>,
    /// File to create.
    record: PathBuf,
}

/// Arguments of `crash explore`.
#[derive(Clone, Debug, Args)]
pub struct ExploreArgs {
    /// Recording made by `crash record`.
    record: PathBuf,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    search: SearchArgs,
}

/// Arguments of `crash repeat`.
#[derive(Clone, Debug, Args)]
pub struct RepeatArgs {
    /// Recording made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// Crash to judge, as a failure names it, e.g. 120:~7.
    #[arg(allow_hyphen_values = true)]
    state: StateId,
    /// Keep the image that the crash left in this file. A region of persistent memory goes beside
    /// it, with the extension `region`.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Search for the shortest workload and the smallest loss, for this many seconds.
    #[arg(long, value_name = "SECONDS")]
    shrink: Option<f64>,
}

/// Arguments of `crash compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// System to compare: stetfs:PRESET, ext4:MOUNT-OPTIONS, xfs or btrfs.
    #[arg(value_name = "SYSTEM", default_values = ["stetfs:ordered", "stetfs:data", "ext4:data=ordered", "ext4:data=journal"])]
    systems: Vec<System>,
    /// Workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
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
    /// Size of a block in bytes.
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    block: u32,
    /// Workload with one case and one thread, or a program: sqlite-wal, sqlite-delete, git,
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
    /// Number of volumes to try with each fault.
    #[arg(long, value_name = "N", default_value_t = 200)]
    each: u64,
}

/// Arguments of `crash report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Recording made by `crash record`, or kept of a failure.
    record: PathBuf,
    /// Crash of the recording to describe.
    #[arg(allow_hyphen_values = true, requires = "html")]
    state: Option<StateId>,
    /// Write a page about the crash to this file: the log, the lost writes, and the trees.
    #[arg(long, value_name = "FILE", requires = "state")]
    html: Option<PathBuf>,
}

fn journal_help() -> String {
    format!(
        "Journal to test: a preset, and options: {}",
        crate::setup::usages()
    )
}

fn workload_help() -> String {
    let names = named::NAMES.map(|(n, what)| format!("  {n:10}  {what}"));
    format!(
        "Workload to run: one of\n{}\nor a file with a script, one operation a line:\n{}",
        names.join("\n"),
        text::SYNTAX
    )
}

impl CrashCommand {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Invalid arguments or files; the error says how to correct them. Broken promises are no
    /// errors.
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
