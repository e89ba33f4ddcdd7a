//! Indirect blocks as blocks of the volume: read through the cache, changed through the journal.

use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::blockmap::{MAX_LEVELS, Shape};

use super::edit::IndirectMut;
use super::lookup::Indirect;
use crate::data::DataStore;
use crate::data::maps::nodes::NodeBlocks;
use crate::error::{FsError, Result};
use crate::inode::{Inode, is_ordinary};
use crate::space::{BlockRun, credits};

/// The indirect blocks of one inode, for lookup.
pub(crate) struct Stored<'a> {
    store: &'a DataStore,
    ino: u32,
}

impl<'a> Stored<'a> {
    pub(crate) fn new(store: &'a DataStore, inode: &Inode) -> Stored<'a> {
        Stored {
            store,
            ino: inode.ino,
        }
    }
}

impl Indirect for Stored<'_> {
    fn read<R>(&self, nr: BlockNr, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        // The volume's own files lie in blocks that other files must not have.
        if is_ordinary(&self.store.vol.geo, self.ino) {
            self.store.space.check_run(BlockRun { start: nr, len: 1 })?;
        }
        let block = self.store.vol.cache.read(nr)?;
        match block.peek() {
            Some(bytes) => Ok(f(&bytes)),
            None => Err(FsError::corrupt("block map", nr, "it has no content")),
        }
    }

    fn shape(&self) -> Shape {
        Shape::new(self.store.vol.geo.block_size)
    }

    fn ino(&self) -> u32 {
        self.ino
    }
}

/// The indirect blocks of one inode, for changing them within a handle.
pub(crate) struct Changing<'a> {
    stored: Stored<'a>,
    h: &'a Handle<'a>,
    /// Allocates and frees the blocks.
    pub(crate) blocks: NodeBlocks<'a>,
}

impl<'a> Changing<'a> {
    pub(crate) fn new(store: &'a DataStore, h: &'a Handle<'_>, inode: &'a Inode) -> Changing<'a> {
        Changing {
            stored: Stored::new(store, inode),
            h,
            blocks: NodeBlocks::new(store, h, inode),
        }
    }
}

impl Indirect for Changing<'_> {
    fn read<R>(&self, nr: BlockNr, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.stored.read(nr, f)
    }

    fn shape(&self) -> Shape {
        self.stored.shape()
    }

    fn ino(&self) -> u32 {
        self.stored.ino
    }
}

impl IndirectMut for Changing<'_> {
    fn change<R>(&self, nr: BlockNr, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.stored.store.vol.cache.read(nr)?;
        let mut bytes = self.h.modify(&block)?;
        self.blocks.note_change();
        Ok(f(&mut bytes))
    }

    fn allocate(&self, near: BlockNr) -> Result<BlockNr> {
        self.blocks.allocate(near)
    }

    fn create(&self, nr: BlockNr, f: impl FnOnce(&mut [u8])) -> Result<()> {
        let block = self.stored.store.vol.cache.get(nr);
        f(&mut self.h.create(&block)?);
        Ok(())
    }

    fn free(&self, nr: BlockNr) -> Result<()> {
        self.blocks.free(nr)
    }
}

/// Credits to change one path of a map: every level may be made or freed; and the inode itself.
pub(crate) const EDIT_CREDITS: Credits = credits::WRITE_INODE
    + MAX_LEVELS
        * (1 + if credits::ALLOC_BLOCKS > credits::FREE_BLOCKS {
            credits::ALLOC_BLOCKS
        } else {
            credits::FREE_BLOCKS
        });

/// The most indirect blocks that mapping `blocks` consecutive file blocks may take.
pub(crate) fn node_space(shape: Shape, blocks: u64) -> u64 {
    let others = blocks.saturating_sub(1);
    (1..=MAX_LEVELS)
        .map(|l| others.div_ceil(shape.span(l)) + 1)
        .sum()
}
