//! Blocks that a file's map allocates for itself, and frees.

use std::cell::Cell;

use stetfs_journal::{BlockNr, Handle};

use crate::data::store::DataStore;
use crate::error::Result;
use crate::inode::Inode;
use crate::space::{AllocFor, Freed};

/// Allocates and frees blocks of a map within a handle, and counts them.
pub(crate) struct NodeBlocks<'a> {
    store: &'a DataStore,
    h: &'a Handle<'a>,
    inode: &'a Inode,
    /// Blocks allocated less blocks freed.
    delta: Cell<i64>,
    changed: Cell<bool>,
}

impl<'a> NodeBlocks<'a> {
    pub(crate) fn new(store: &'a DataStore, h: &'a Handle<'_>, inode: &'a Inode) -> NodeBlocks<'a> {
        NodeBlocks {
            store,
            h,
            inode,
            delta: Cell::new(0),
            changed: Cell::new(false),
        }
    }

    /// Allocates a block, with the cluster around it, as near to `near` as possible.
    pub(crate) fn allocate(&self, near: BlockNr) -> Result<BlockNr> {
        let run =
            self.store
                .space
                .alloc_blocks(self.h, self.inode, Some(near), 1, AllocFor::Meta)?;
        self.delta.set(self.delta.get() + i64::from(run.len));
        self.note_change();
        Ok(run.start)
    }

    /// Frees a block.
    pub(crate) fn free(&self, nr: BlockNr) -> Result<()> {
        let ratio = self.store.vol.geo.ratio();
        self.delta.set(self.delta.get() - i64::from(ratio));
        self.note_change();
        self.store.space.free_cluster(self.h, nr, Freed::Journaled)
    }

    /// Notes that a node changes.
    pub(crate) fn note_change(&self) {
        self.changed.set(true);
    }

    /// Whether anything changed outside the inode.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.get()
    }

    /// Blocks allocated less blocks freed.
    pub(crate) fn delta(&self) -> i64 {
        self.delta.get()
    }
}
