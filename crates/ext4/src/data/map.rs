//! Which blocks hold a file's content; directory blocks.

use std::sync::Arc;

use stetfs_journal::{Block, BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END, NodeRef};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::extents::{Changing, Found, Stored, Tree, edit_credits, find, first_from};
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::space::{AllocFor, BlockRun};
use crate::types::ROOT_INO;

/// What lies at a place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Nothing for `len` blocks: reads as zeroes.
    Hole {
        /// File blocks.
        len: u32,
    },
    /// `len` blocks of the volume from `start`.
    Mapped {
        /// First block.
        start: BlockNr,
        /// Blocks.
        len: u32,
        /// Reads as zeroes until written.
        unwritten: bool,
    },
}

impl Fs {
    fn check_mapped_by_extents(&self, inode: &Inode, body: &InodeBody) -> Result<()> {
        if body.flags().contains(InodeFlags::EXTENTS) {
            return Ok(());
        }
        let what = if body.flags().contains(InodeFlags::INLINE_DATA) {
            "data in the inode"
        } else {
            "a block map of ext2"
        };
        Err(FsError::Unsupported(format!(
            "inode {} uses {what} instead of extents",
            inode.ino
        )))
    }

    /// What lies at file block `lblk`, for at most `max` blocks (at least 1 is told).
    ///
    /// # Errors
    /// EUCLEAN when the tree is damaged or leads to the file system's own blocks; EOPNOTSUPP for
    /// inodes not mapped by extents.
    pub(crate) fn map(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
        max: u32,
    ) -> Result<Mapping> {
        self.check_mapped_by_extents(inode, body)?;
        let max = max.max(1);
        match find(&Stored::new(self, inode, body), body.i_block(), lblk)
            .inspect_err(|e| self.report(e))?
        {
            Found::Hole(next) => {
                let len = next
                    .saturating_sub(u64::from(lblk))
                    .clamp(1, u64::from(max)) as u32;
                Ok(Mapping::Hole { len })
            }
            Found::Extent(e) => {
                let skip = lblk - e.block;
                let run = BlockRun {
                    start: e.start + u64::from(skip),
                    len: (e.len - skip).min(max),
                };
                // The volume's own files lie where the others must not.
                if inode.ino == ROOT_INO || inode.ino >= self.geo.first_ino {
                    self.check_run(run).inspect_err(|e| self.report(e))?;
                }
                Ok(Mapping::Mapped {
                    start: run.start,
                    len: run.len,
                    unwritten: e.unwritten,
                })
            }
        }
    }

    /// The first extent that ends behind file block `from`.
    pub(crate) fn next_extent(
        &self,
        inode: &Inode,
        body: &InodeBody,
        from: u64,
    ) -> Result<Option<Extent>> {
        self.check_mapped_by_extents(inode, body)?;
        first_from(&Stored::new(self, inode, body), body.i_block(), from)
    }

    /// Levels of the inode's extent tree below its root.
    pub(crate) fn tree_depth(&self, body: &InodeBody) -> u16 {
        NodeRef::new(body.i_block()).map_or(0, |n| n.depth())
    }

    /// Credits to change one leaf of the inode's extent tree, with the inode.
    pub(crate) fn tree_credits(&self, body: &InodeBody) -> Credits {
        edit_credits(self.tree_depth(body))
    }

    /// Lets `f` change the extent tree; blocks its nodes took or gave are counted in the inode. The
    /// caller writes the inode afterwards, also after an error.
    pub(crate) fn edit_tree<R>(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        f: impl FnOnce(&mut Tree<'_, Changing<'_>>) -> Result<R>,
    ) -> Result<R> {
        self.check_mapped_by_extents(inode, body)?;
        let nodes = Changing::new(self, h, inode, body);
        let result = Tree::open(&nodes, body.i_block_mut()).and_then(|mut tree| f(&mut tree));
        body.add_blocks(nodes.delta.get())?;
        result
    }

    /// A block of a directory.
    ///
    /// # Errors
    /// EUCLEAN if there is none.
    pub(crate) fn dir_block(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
    ) -> Result<Arc<Block>> {
        match self.map(inode, body, lblk, 1)? {
            Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } => Ok(self.cache.read(start)?),
            _ => {
                let e = FsError::corrupt(
                    "directory",
                    0,
                    format!("inode {} has a hole at block {lblk}", inode.ino),
                );
                self.report(&e);
                Err(e)
            }
        }
    }

    /// Appends a zeroed block to a directory and writes the inode (`credits::APPEND_DIR_BLOCK`). The
    /// caller has reserved the space.
    ///
    /// # Errors
    /// ENOSPC, EFBIG; the directory is then as before.
    pub(crate) fn append_dir_block(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<(u32, Arc<Block>)> {
        let size = body.size();
        let lblk = size >> self.geo.block_bits;
        if lblk >= LOGICAL_END {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let lblk = lblk as u32;
        let nr = self.add_meta_block(h, inode, body, lblk)?;
        let block = self.cache.get(nr);
        h.create(&block)?;
        body.set_size(size + u64::from(self.geo.block_size));
        self.write_inode_data(h, inode, body)?;
        Ok((lblk, block))
    }

    /// Maps one new block of a directory or symbolic link, near the one before it.
    pub(super) fn add_meta_block(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
    ) -> Result<BlockNr> {
        let goal = self.goal_for(inode, body, lblk)?;
        let run = self.alloc_blocks(h, inode, goal, 1, AllocFor::Meta)?;
        self.map_new(h, inode, body, lblk, run, false)?;
        Ok(run.start)
    }

    /// Where the block that holds file block `lblk` should lie: behind its predecessor.
    pub(super) fn goal_for(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
    ) -> Result<Option<BlockNr>> {
        let Some(before) = lblk.checked_sub(1) else {
            return Ok(None);
        };
        match self.map(inode, body, before, 1)? {
            Mapping::Mapped { start, .. } => Ok(Some(start + 1)),
            Mapping::Hole { .. } => Ok(None),
        }
    }

    /// Puts a run just allocated into the tree and counts it. If that fails, the run is free again.
    pub(super) fn map_new(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
        run: BlockRun,
        unwritten: bool,
    ) -> Result<()> {
        let new = Extent {
            block: lblk,
            len: run.len,
            start: run.start,
            unwritten,
        };
        let counted = body.add_blocks(i64::from(run.len));
        let result = match counted {
            Ok(()) => self
                .edit_tree(h, inode, body, |tree| tree.insert(new))
                .inspect_err(|_| {
                    // It was added just now, so it can be taken away.
                    let _ = body.add_blocks(-i64::from(run.len));
                }),
            Err(e) => Err(e),
        };
        result.inspect_err(|_| {
            if let Err(e) = self.free_blocks(h, run, crate::space::Freed::Data) {
                self.report(&e);
            }
        })
    }
}
