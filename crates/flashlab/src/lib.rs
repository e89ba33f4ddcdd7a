//! The flash laboratory: runs traces of reads and writes through a page cache with some replacement
//! policy onto a simulated flash device with some translation layer.
//!
//! * [`trace`]: traces, their format, and readers of other formats;
//! * [`generate`]: traces by seed, like those of the paper (Kang, dissertation ch. 2, table 2-2);
//! * [`PageCache`]: the cache; its policies are those of mounted volumes (`stetfs_cache::Policy`);
//! * [`Device`]: a translation layer of `stetfs_flash` with times;
//! * [`run`]: a trace through the cache onto the device;
//! * [`saved`]: points of a figure, saved while it is computed;
//! * [`command`]: the subcommands `stetfs flash run` and `stetfs flash trace`.

#![forbid(unsafe_code)]

mod cache;
pub mod command;
mod device;
pub mod figure;
pub mod generate;
mod page;
mod run;
pub mod saved;
pub mod trace;

pub use cache::{CacheCounters, PageCache, Storage};
pub use device::{Device, DeviceReport, Medium, UnknownMedium};
pub use page::PAGE;
pub use run::{Outcome, RunError, Setup, run, run_cut, steady};
