//! Chunks: the parts of a write, each within one transaction.

use crate::inode::Inode;

/// Bytes of a chunk: one transaction can hold it completely when data is journaled.
pub(crate) const CHUNK: usize = 1 << 20;
/// Runs of new blocks in the credits of a handle, in addition to one for each hole. A hole may need
/// several runs; for more than these the handle is extended.
pub(crate) const SPARE_RUNS: u32 = 3;

/// One chunk of a write.
pub(crate) struct Chunk<'a> {
    pub(crate) inode: &'a Inode,
    /// First byte in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// The caller may use the blocks reserved for root.
    pub(crate) privileged: bool,
    /// Clear set-user-id and set-group-id.
    pub(crate) kill: bool,
    pub(crate) journaled: bool,
}

/// The written part of a chunk.
pub(crate) struct Written {
    pub(crate) bytes: usize,
    /// The volume, or the quota, had no room for more.
    pub(crate) no_room: bool,
}

impl Chunk<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}
