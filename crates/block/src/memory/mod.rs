//! Memory for blocks, allocated and cleared by the kernel before it is needed.
//!
//! The first access to a page waits for the kernel: 0.2 ms for a huge page, and 5 to 8 ms on a
//! virtual machine whose host has to find it. So a thread prepares memory ahead of its use
//! (`prepare`), in pages of a size that does not stop the processor for long (`pages`), and freed
//! memory is reused (`pool`).

mod chunk;
mod pages;
mod pool;
mod prepare;
mod region;

pub(crate) use chunk::{Chunk, give, take, take_prepared};
pub(crate) use pool::CLASSES;
pub use pool::MemoryStats;
pub use prepare::{Preparer, memory_stats};
