//! The tree's nodes as blocks of the volume: read through the cache, changed through the journal.

use std::ops::Range;

use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::extent::{
    Expect, NodeMut, NodeRef, update_block_checksum, verify_block_checksum,
};

use super::tree::{Nodes, NodesMut};
use crate::data::DataStore;
use crate::data::maps::nodes::NodeBlocks;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::credits;
use crate::verified;

/// The nodes of one inode's tree, for lookup.
pub(crate) struct Stored<'a> {
    store: &'a DataStore,
    ino: u32,
    /// Seed of the nodes' checksums; `None` on volumes without checksums.
    seed: Option<u32>,
}

impl<'a> Stored<'a> {
    pub(crate) fn new(store: &'a DataStore, inode: &Inode, body: &InodeBody) -> Stored<'a> {
        Stored {
            store,
            ino: inode.ino,
            seed: body.csum_seed(inode.ino, &store.vol.geo.checksums),
        }
    }

    fn damaged(&self, nr: BlockNr, detail: impl std::fmt::Display) -> FsError {
        FsError::corrupt(
            "extent tree block",
            nr,
            format!("inode {}: {detail}", self.ino),
        )
    }

    fn check(&self, nr: BlockNr, bytes: &[u8], expect: &Expect) -> Result<()> {
        if !verify_block_checksum(self.seed, bytes) {
            return Err(self.damaged(nr, "checksum does not match"));
        }
        NodeRef::new(bytes)
            .and_then(|n| n.check(expect))
            .map_err(|e| self.damaged(nr, e))
    }
}

impl Nodes for Stored<'_> {
    fn read<R>(&self, nr: BlockNr, expect: &Expect, f: impl FnOnce(NodeRef<'_>) -> R) -> Result<R> {
        let block = self.store.vol.cache.read(nr)?;
        let Some(bytes) = block.peek() else {
            return Err(self.damaged(nr, "it has no content"));
        };
        if block.verified() != verified::EXTENT_NODE {
            self.check(nr, &bytes, expect)
                .inspect_err(|e| self.store.vol.report(e))?;
            block.set_verified(verified::EXTENT_NODE);
        }
        let node = NodeRef::new(&bytes[..]).map_err(|e| self.damaged(nr, e))?;
        // Checked at every step, or a loop of blocks would lead to an endless walk.
        if Some(node.depth()) != expect.depth {
            return Err(self.damaged(
                nr,
                format_args!("depth {} instead of {:?}", node.depth(), expect.depth),
            ));
        }
        Ok(f(node))
    }

    fn blocks(&self) -> Range<BlockNr> {
        self.store.vol.geo.layout.valid_blocks()
    }

    fn ino(&self) -> u32 {
        self.ino
    }
}

/// The nodes of one inode's tree, for changes within a handle.
pub(crate) struct Changing<'a> {
    stored: Stored<'a>,
    h: &'a Handle<'a>,
    /// Allocates and frees the blocks.
    pub(crate) blocks: NodeBlocks<'a>,
}

impl<'a> Changing<'a> {
    pub(crate) fn new(
        store: &'a DataStore,
        h: &'a Handle<'_>,
        inode: &'a Inode,
        body: &InodeBody,
    ) -> Changing<'a> {
        Changing {
            stored: Stored::new(store, inode, body),
            h,
            blocks: NodeBlocks::new(store, h, inode),
        }
    }
}

impl Nodes for Changing<'_> {
    fn read<R>(&self, nr: BlockNr, expect: &Expect, f: impl FnOnce(NodeRef<'_>) -> R) -> Result<R> {
        self.stored.read(nr, expect, f)
    }

    fn blocks(&self) -> Range<BlockNr> {
        self.stored.blocks()
    }

    fn ino(&self) -> u32 {
        self.stored.ino
    }
}

impl NodesMut for Changing<'_> {
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut NodeMut<'_>) -> Result<R>) -> Result<R> {
        let block = self.stored.store.vol.cache.read(nr)?;
        let mut bytes = self.h.modify(&block)?;
        self.blocks.note_change();
        let result = f(&mut NodeMut::new(&mut bytes[..])?)?;
        update_block_checksum(self.stored.seed, &mut bytes)?;
        Ok(result)
    }

    fn create(
        &self,
        near: BlockNr,
        depth: u16,
        f: impl FnOnce(&mut NodeMut<'_>) -> Result<()>,
    ) -> Result<BlockNr> {
        let nr = self.blocks.allocate(near)?;
        let block = self.stored.store.vol.cache.get(nr);
        {
            let mut bytes = self.h.create(&block)?;
            f(&mut NodeMut::init(&mut bytes[..], depth)?)?;
            update_block_checksum(self.stored.seed, &mut bytes)?;
        }
        block.set_verified(verified::EXTENT_NODE);
        Ok(nr)
    }

    fn free(&self, nr: BlockNr) -> Result<()> {
        self.blocks.free(nr)
    }
}

/// Credits to change one leaf of a tree of `depth`: every level may be split or freed, and a level
/// may be added; and the inode itself.
pub(crate) const fn edit_credits(depth: u16) -> Credits {
    let levels = depth as Credits + 1;
    // For each level: a node, its new neighbour, and the allocation of that or the free of the
    // node.
    let each = 2 + if credits::ALLOC_BLOCKS > credits::FREE_BLOCKS {
        credits::ALLOC_BLOCKS
    } else {
        credits::FREE_BLOCKS
    };
    credits::WRITE_INODE + (levels + 1) * each
}

/// The most blocks that a change of one leaf of a tree of `depth` allocates for nodes.
pub(crate) fn edit_blocks(depth: u16) -> u64 {
    u64::from(depth) + 2
}
