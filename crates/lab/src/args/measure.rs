//! The arguments of `stetfs bench` and `stetfs flash`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Compare mounted file systems: the same workloads on each, in interleaved rounds.
    Compare(Box<stetfs_bench::compare::CompareArgs>),
    /// Repeat a figure of a paper, with the paper's numbers beside the measured ones. Needs root.
    Figure(stetfs_bench::figure::FigureArgs),
    /// Age volumes of StetFS and of the kernel's ext4 by months of simulated use, and count extents
    /// and free runs.
    Age(stetfs_bench::age::AgeArgs),
    /// Run a load on many simulated cores, in virtual time, and name the locks and cache lines that
    /// threads wait for. Needs a build with the feature `virtual`.
    Scale(stetfs_bench::scale::ScaleArgs),
}

/// The commands of the flash laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum Flash {
    /// Run a trace through a cache with each replacement policy, and the resulting writes through a
    /// flash device.
    Run(stetfs_flashlab::command::RunArgs),
    /// Record, show and convert traces.
    #[command(subcommand)]
    Trace(FlashTrace),
    /// Repeat a figure of the TS-CLOCK paper, with the paper's numbers beside the measured ones.
    Figure(stetfs_bench::flash::FlashFigureArgs),
}

/// The commands on traces.
#[derive(Debug, Subcommand)]
pub(crate) enum FlashTrace {
    #[command(flatten)]
    Other(stetfs_flashlab::command::TraceCommand),
    /// Record the requests of programs to a mounted volume: until Ctrl-C, for some time, or while a
    /// command runs.
    Record(RecordArgs),
}

/// Arguments of `flash trace record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The directory of the mount.
    pub(crate) dir: PathBuf,
    /// Write the trace of reads and writes of file blocks to this file, as the requests arrive at
    /// the server. Accesses that the kernel's page cache serves do not arrive; with the mount
    /// option direct_io all do.
    #[arg(short, long, value_name = "FILE", required_unless_present = "below")]
    pub(crate) out: Option<PathBuf>,
    /// Write the trace of requests to the volume's device, below the server's cache, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) below: Option<PathBuf>,
    /// Record for so many seconds.
    #[arg(long, value_name = "N", conflicts_with = "command")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: Option<u64>,
    /// Run this command, and record until it ends. Its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
