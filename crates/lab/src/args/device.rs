//! The arguments of `stetfs device`: simulated devices.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands on simulated devices.
#[derive(Debug, Subcommand)]
pub(crate) enum Device {
    /// Serve a device as a file, for loop devices and `stetfs mount`. Runs until it is interrupted
    /// or unmounted; needs root.
    Serve(DeviceServeArgs),
    /// Set the faults of a served device, or show them.
    Fault(DeviceFaultArgs),
}

/// Arguments of `device fault`.
#[derive(Debug, Args)]
pub(crate) struct DeviceFaultArgs {
    /// The directory where the device is served.
    pub(crate) dir: PathBuf,
    /// Faults from now on.
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
    /// Time model of the device: sata-ssd, nvme-ssd or disk. Without it, requests take their real
    /// time.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<stetfs_flash::Model>,
    /// Serve an empty device of this size in memory, e.g. 4G.
    #[arg(long, value_name = "SIZE", required_unless_present = "image")]
    #[arg(value_parser = stetfs::low::size::bytes)]
    pub(crate) size: Option<u64>,
    /// Serve the content of this file or block device.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "ftl"])]
    pub(crate) image: Option<PathBuf>,
    /// Give the device a cache that a power cut empties (`stetfs device fault DIR power-cut=…`).
    #[arg(long)]
    pub(crate) volatile: bool,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    /// The directory to serve in: the device is the file `disk`, its counters are the file `stats`,
    /// and its faults are set through the file `control`.
    pub(crate) dir: PathBuf,
}

/// The flash of a served device.
#[derive(Debug, Args)]
pub(crate) struct FlashArgs {
    /// Simulate flash behind a translation layer: page (page-level mapping, and SHARE), fast (log
    /// blocks for all writes), or bast or bast,logs=N (log blocks for one erase block each, 4 of
    /// them unless N is given). The times of the model then apply to the pages that the layer moves
    /// and the blocks that it erases, too. The content is in memory.
    #[arg(long, value_name = "NAME")]
    pub(crate) ftl: Option<stetfs_flash::ftl::FtlKind>,
    /// Spare erase blocks, in percent of those for the size of the device.
    #[arg(long, value_name = "PERCENT", default_value_t = 15, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1000))]
    pub(crate) spare: u32,
    /// Size of an erase block, e.g. 24M.
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "ftl")]
    #[arg(value_parser = stetfs::low::size::bytes)]
    pub(crate) erase_block: u64,
    /// Age the flash before it is served: write every page once, then as many pages again, half in
    /// runs and half at random places.
    #[arg(long, requires = "ftl")]
    pub(crate) aged: bool,
    /// Put a layer above the flash: log writes segments of 2 MiB one after the other, and cleans
    /// them.
    #[arg(long, value_name = "NAME", requires = "ftl", value_parser = ["log"])]
    pub(crate) layer: Option<String>,
    /// Cleaning in that layer: share, without copying where the flash can, or copy.
    #[arg(long, value_name = "HOW", default_value = "share", requires = "layer")]
    pub(crate) cleaner: stetfs_flash::segments::Cleaner,
    /// Most pages of 4 KiB in one SHARE request, 508 at most.
    #[arg(long, value_name = "N", default_value_t = 256, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=508))]
    pub(crate) share_pairs: u32,
    /// Most logical pages that refer to one flash page.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "ftl")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=508))]
    pub(crate) share_references: u32,
}
