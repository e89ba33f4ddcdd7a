//! Block devices: image file or raw device (io_uring, O_DIRECT), memory, a window on another
//! device, recorder, fault injector, a device with a volatile cache, a gate that holds writes, and
//! sparse images.
//!
//! Everything above reads and writes through [`BlockDevice`]. All offsets and lengths are bytes.
//!
//! A device promises this, and nothing more:
//! 1. Every later read sees a write that returned. Concurrent overlapping requests have no order.
//! 2. [`BlockDevice::flush`] makes every write durable that returned before the call. A write with
//!    `fua` is durable when it returns.
//! 3. Until then a crash may keep any subset of the writes, in any order, at the granularity of
//!    [`BlockDevice::sector_size`]; a sector itself is old or new.
//! 4. A shared batch counts as a write to all its destinations. On a device with atomic batches a
//!    crash keeps all of it or nothing.
//! 5. After a failed flush nothing is known about the writes since the last successful one; a later
//!    successful flush does not bring them back.
//! 6. The error of a request that flushes by itself and fails in that says so
//!    ([`BlockError::is_of_flush`]): all acknowledged writes may be lost, not only the request's.

mod attempts;
mod buf;
mod device;
mod error;
mod fail_stop;
mod failures;
mod fault;
mod file;
mod gate;
mod joined;
mod latency;
mod list;
mod mem;
mod memory;
pub mod namespaces;
mod overlay;
mod range;
mod record;
mod replay;
mod share;
mod sparse;
mod stats;
#[cfg(feature = "test-suite")]
// Checks report by panicking.
#[allow(clippy::unwrap_used)]
pub mod suite;
mod tap;
mod text;
mod unflushed;
mod volatile;
mod window;

pub use attempts::Attempts;
pub use buf::AlignedBuf;
pub use device::{BlockDevice, Gather, Read, Scatter, Write, sharing_of, write_zeros};
pub use error::{BlockError, Holder, Op, Result};
pub use fail_stop::FailStop;
pub use failures::{Failed, FailedRequest, Failures, Watched};
pub use fault::{Fault, FaultInjector};
pub use file::{Direct, FileDevice, OpenOptions, Peek, SharedBy, SpanLock, Uring};
pub use gate::{Gate, Shut};
pub use joined::Joined;
pub use latency::{Histogram, Latency};
pub use list::{ReadList, WriteList};
pub use mem::MemDevice;
pub use memory::{MemoryStats, Preparer, memory_stats};
pub use overlay::Overlay;
pub use range::{check_discard, check_range};
pub use record::{Event, Log, Recorder};
pub use replay::{PendingSector, Replay};
pub use share::{Share, ShareLimits, SharePair, check_share};
pub use sparse::{
    BadSparse, Packed, ReadAt, SPARSE_MAGIC, SparseDevice, SparseError, SparseMap, Zeroes, pack,
    unpack,
};
pub use stats::{Counters, Stats};
pub use tap::{Asked, Layer, Taken, Tap, Tapped};
pub use text::{is_unseen, printable, printable_line};
pub use volatile::Volatile;
pub use window::{Span, Window};

/// The smallest unit that a disk writes atomically, in bytes: the granularity of torn writes.
pub const SECTOR: u32 = 512;
