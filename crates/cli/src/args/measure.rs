//! Measurements, and the flash laboratory.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    #[arg(long, value_name = "N", conflicts_with = "command")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Runs this, and records until it ends. Its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
