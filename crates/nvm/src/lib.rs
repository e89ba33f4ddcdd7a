//! Persistent memory as the core sees it: a mapped file, memory for tests, and a recorder whose log
//! yields the states that a crash can leave.
//!
//! Everything above stores and loads through [`Region`]. All offsets and lengths are bytes.
//!
//! A region promises this, and nothing more:
//! 1. Every load sees the stores that returned before it. The smallest unit is a word: 8 bytes,
//!    aligned. A word is old or new, for readers and after a crash; stores to a word take effect
//!    one after the other.
//! 2. [`Region::flush`] starts writing lines of [`LINE`] bytes to memory. [`Region::fence`] makes
//!    the lines durable that the *calling thread* has flushed before, with their content at the
//!    flush or newer content. A fence promises nothing for the flushes of other threads.
//! 3. Until then a crash may keep any of the lines, each with its content at some moment: the words
//!    of a line arrive in the order in which they were stored (x86-TSO), words of different lines
//!    in any order. A store of many bytes stores its words upwards.
//! 4. [`Region::durability`] says which kinds of crash durable content survives.
//! 5. After a failed fence every later fence fails: the content that it should have made durable
//!    may be lost.

mod cpu;
mod file;
mod mem;
mod record;
mod region;
mod replay;
#[cfg(feature = "test-suite")]
// Checks report by panicking.
#[allow(clippy::unwrap_used)]
pub mod suite;
mod words;

pub use file::{FileRegion, FlushBy};
pub use mem::MemRegion;
pub use record::{RegionEvent, RegionLog, RegionRecorder, What};
pub use region::{Durability, Region};
pub use replay::{PendingLine, RegionReplay};

/// The unit of a flush, in bytes: a line of the processor's cache.
pub const LINE: u64 = 64;
/// The unit of an atomic store, in bytes.
pub const WORD: u64 = 8;
