//! The way through a directory's index.

use std::sync::Arc;

use stetfs_journal::Block;
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::NodeKind;

use crate::error::{FsError, Result};

/// One block on the way from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) block: Arc<Block>,
    pub(super) kind: NodeKind,
    /// The entry that was followed.
    pub(super) at: usize,
    /// Whether the block holds as many entries as it can.
    pub(super) full: bool,
    /// Whether that entry is the last.
    pub(super) last: bool,
    /// Where it leads.
    pub(super) child: u32,
    /// Lowest hash that lies there, with the collision bit; 0 if the frame above says it.
    pub(super) hash: u32,
}

/// The way from the root to a leaf; never empty.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) frames: Vec<Frame>,
    pub(super) version: HashVersion,
}

impl Path {
    /// The leaf it leads to.
    ///
    /// # Errors
    /// It leads nowhere.
    pub(super) fn leaf(&self) -> Result<u32> {
        let last = self.frames.last().ok_or_else(no_frame)?;
        Ok(last.child)
    }

    /// The lowest hash of names there.
    pub(super) fn begins(&self) -> u32 {
        self.frames.iter().map(|f| f.hash & !1).max().unwrap_or(0)
    }
}

pub(super) fn no_frame() -> FsError {
    FsError::corrupt("directory index", 0, "a way through it without a step")
}
