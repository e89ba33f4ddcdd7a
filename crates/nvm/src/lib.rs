//! Persistent memory as the core sees it: a mapped file, memory for tests, and a recorder whose
//! record gives what a crash leaves.
//!
//! Everything above stores and loads through [`Region`]. All offsets and lengths are bytes.
//!
//! What a region promises, and nothing more:
//! 1. A store that returned is seen by every later load. The smallest unit is a word: 8 bytes,
//!    aligned. A word is old or new, for readers and after a crash; stores to a word take effect
//!    one after the other.
//! 2. [`Region::flush`] sends lines of [`LINE`] bytes on their way. [`Region::fence`] makes durable
//!    what the *calling thread* has flushed before, as it was when it was flushed, or newer. Nobody
//!    may count on another thread's fence.
//! 3. Until then a crash may keep any of the lines, each as it was at some moment: the words of a
//!    line arrive in the order in which they were stored (x86-TSO), words of different lines in
//!    any. A store of many bytes stores its words upwards.
//! 4. What "durable" survives is said by [`Region::durability`].
//! 5. After a fence that failed every later one fails: what it was to make durable may be lost.

mod cpu;
mod file;
mod mem;
mod record;
mod region;
mod replay;
#[cfg(feature = "test-suite")]
// A check panics; that is its answer.
#[allow(clippy::unwrap_used)]
pub mod suite;
mod words;

pub use file::{FileRegion, FlushBy};
pub use mem::MemRegion;
pub use record::{RegionEvent, RegionLog, RegionRecorder, What};
pub use region::{Durability, Region};
pub use replay::{PendingLine, RegionReplay};

/// What a flush takes as a whole, in bytes: a line of the processor's cache.
pub const LINE: u64 = 64;
/// What is stored as a whole, in bytes.
pub const WORD: u64 = 8;
