//! The flash laboratory: traces of reads and writes run through a page cache with some replacement
//! policy, and what the cache writes through a simulated flash device with some translation layer.
//!
//! * [`trace`]: traces, their format, and readers of others';
//! * [`generate`]: traces by seed, like those of the paper (Kang, dissertation ch. 2, table 2-2);
//! * [`PageCache`]: the cache; its policies are those of mounted volumes (`stetfs_cache::Policy`);
//! * [`Device`]: a translation layer of `stetfs_flash` with times;
//! * [`run`]: both together;
//! * [`saved`]: points of a figure, kept while it is computed;
//! * [`command`]: `stetfs flash run` and its like.

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
