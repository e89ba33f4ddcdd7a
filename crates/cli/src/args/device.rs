//! Simulated devices.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    #[arg(long, value_name = "SIZE", required_unless_present = "image")]
    #[arg(value_parser = stetfs::low::size::bytes)]
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
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "ftl")]
    #[arg(value_parser = stetfs::low::size::bytes)]
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
