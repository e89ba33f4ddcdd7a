//! The path through a directory's index.

use std::sync::Arc;

use stetfs_journal::Block;
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::NodeKind;

use crate::error::{FsError, Result};

/// One index block on the path from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) block: Arc<Block>,
    pub(super) kind: NodeKind,
    /// The entry that the path follows.
    pub(super) at: usize,
    /// Whether the block is full.
    pub(super) full: bool,
    /// Whether the followed entry is the last one.
    pub(super) last: bool,
    /// The block of the directory that the entry leads to.
    pub(super) child: u32,
    /// The lowest hash there, with the collision bit; 0 if the frame above has it.
    pub(super) hash: u32,
}

/// The path from the root to a leaf; never empty.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(super) frames: Vec<Frame>,
    pub(super) version: HashVersion,
}

impl Path {
    /// The leaf at its end.
    ///
    /// # Errors
    /// `Corrupt` when the path is empty.
    pub(super) fn leaf(&self) -> Result<u32> {
        let last = self.frames.last().ok_or_else(no_frame)?;
        Ok(last.child)
    }

    /// The lowest hash of names in the leaf.
    pub(super) fn begins(&self) -> u32 {
        self.frames.iter().map(|f| f.hash & !1).max().unwrap_or(0)
    }
}

pub(super) fn no_frame() -> FsError {
    FsError::corrupt("directory index", 0, "an empty index path (internal error)")
}
