//! A part of a write that one transaction takes.

use crate::inode::Inode;
use crate::types::Ctx;
use crate::xattr::Layout;

/// Bytes of one chunk: what one transaction takes whole when data is journaled.
pub(in crate::data) const CHUNK: usize = 1 << 20;
/// Runs of new blocks that a handle is asked for at once beside one for each hole, which may have
/// to be filled with several; for more it is extended.
pub(in crate::data) const SPARE_RUNS: u32 = 3;

/// One chunk of a write.
pub(super) struct Chunk<'a> {
    pub(super) inode: &'a Inode,
    /// First byte in the file.
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
    /// Who writes.
    pub(super) ctx: &'a Ctx,
    /// Allowed to use the blocks kept for root.
    pub(super) privileged: bool,
    /// Clear set-user-id and set-group-id.
    pub(super) kill: bool,
    pub(super) journaled: bool,
}

/// How much of a chunk was written.
pub(super) struct Written {
    pub(super) bytes: usize,
    /// The volume, or the quota, had no room for more.
    pub(super) no_room: bool,
}

/// What goes with a change by somebody unprivileged.
pub(super) struct Dropped {
    pub(super) capability: Layout,
    /// Whether anything goes at all.
    pub(super) any: bool,
}

impl Chunk<'_> {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}
