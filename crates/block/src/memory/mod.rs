//! Memory for blocks, found and cleared by the kernel before it is needed.
//!
//! What a request touches first it waits for: 0.2 ms for a huge page, and 5 to 8 on a virtual
//! machine whose host has to find it. So a thread prepares some of it ahead of its use (`prepare`),
//! in pages that do not stop the processor for so long (`pages`), and what was used is used again
//! (`pool`).

mod chunk;
mod pages;
mod pool;
mod prepare;
mod region;

pub(crate) use chunk::{Chunk, give, take, take_prepared};
pub(crate) use pool::CLASSES;
pub use pool::MemoryStats;
pub use prepare::{Preparer, memory_stats};
