//! jbd2's log format ("Journal (jbd2)" in the ext4 documentation). All fields are big-endian.

pub mod block;
pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod revoke;
pub mod superblock;

pub use block::{BlockHeader, BlockType, MAGIC};
pub use superblock::{CompatFlags, Config, IncompatFlags, JournalSuperblock};

#[cfg(test)]
mod tests;
