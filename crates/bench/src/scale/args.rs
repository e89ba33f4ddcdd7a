//! The command line of `stetfs bench scale`.

use clap::{Args, ValueEnum};
use stetfs_flash::Model;

/// A load: what each thread repeats, in files and directories of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Create empty files.
    Create,
    /// Append 4 KiB to a file, and sync it.
    AppendFsync,
    /// Overwrite 4 KiB of a file.
    Overwrite,
    /// Overwrite 4 KiB of a file, and sync it.
    OverwriteFsync,
    /// Rename a file.
    Rename,
    /// Filebench's varmail, in one directory for all.
    Varmail,
}

/// Arguments of `bench scale`.
#[derive(Clone, Debug, Args)]
pub struct ScaleArgs {
    /// A journal of StetFS, as in mount options (`journal=zjournal,groups=core`); may be repeated.
    #[arg(long = "stetfs", value_name = "OPTIONS", default_values = ["journal=ordered"])]
    pub(super) journals: Vec<String>,
    /// Numbers of cores, each with one thread of the load.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["1", "2", "4", "8"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(super) cores: Vec<u32>,
    /// The loads.
    #[arg(long = "load", value_name = "LOAD", value_delimiter = ',', default_values = ["create"])]
    pub(super) loads: Vec<Load>,
    /// The model of the device; none: memory.
    #[arg(long, value_name = "MODEL")]
    pub(super) device: Option<Model>,
    /// Virtual time of each run, in ms.
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(super) millis: u64,
    /// Charge fixed costs of operations only, and no work between them: runs repeat exactly.
    #[arg(long)]
    pub(super) table: bool,
    /// Breaks ties between threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run each load on 1 and 2 cores of this machine, too, on the same model in real time, and
    /// print how far the prediction is off.
    #[arg(long, conflicts_with = "table")]
    pub(super) validate: bool,
    /// Places where threads waited longest that are listed for each run.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) waits: usize,
}
