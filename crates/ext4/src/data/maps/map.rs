//! The map of a file: which blocks hold its content; blocks of directories.

use std::sync::Arc;

use smallvec::SmallVec;
use stetfs_journal::{Block, BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::blockmap::Shape;
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END, NodeMut, NodeRef};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::InodeFlags;

use crate::data::maps::blockmap::{self, BlockMap};
use crate::data::maps::clusters::Space;
use crate::data::maps::extents::{self, Tree};
use crate::data::maps::mapping::{EditMap, Found, first_from};
use crate::data::store::DataStore;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::space::{AllocFor, BlockRun, Freed};
use crate::types::ROOT_INO;
use stetfs_ondisk::num::bounded32;

/// The mapping at a place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// A hole of `len` blocks: reads as zeroes.
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

/// The kind of map of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MapKind {
    /// `EXTENTS`.
    Extents,
    /// Direct and indirect blocks, as in ext2 and ext3.
    Blocks,
}

impl MapKind {
    fn of(inode: &Inode, body: &InodeBody) -> Result<MapKind> {
        if body.is_inline() {
            Err(FsError::corrupt(
                "inode",
                0,
                format!("inode {} has inline data, not blocks", inode.ino),
            ))
        } else if body.flags().contains(InodeFlags::EXTENTS) {
            Ok(MapKind::Extents)
        } else {
            Ok(MapKind::Blocks)
        }
    }
}

impl DataStore {
    /// The mapping of file block `lblk`. In a block map the answer covers at most `max` blocks.
    fn find(&self, inode: &Inode, body: &InodeBody, lblk: u32, max: u32) -> Result<Found> {
        let root = body.i_block();
        match MapKind::of(inode, body)? {
            MapKind::Extents => extents::find(&extents::Stored::new(self, inode, body), root, lblk),
            MapKind::Blocks => blockmap::find(&blockmap::Stored::new(self, inode), root, lblk, max),
        }
    }

    /// The mapping of file block `lblk`, for 1 to `max` blocks.
    ///
    /// # Errors
    /// EUCLEAN when the map is damaged or leads to the file system's own blocks.
    pub(crate) fn map(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
        max: u32,
    ) -> Result<Mapping> {
        let max = max.max(1);
        match self
            .find(inode, body, lblk, max)
            .inspect_err(|e| self.vol.report(e))?
        {
            Found::Hole(next) => {
                let len = bounded32(
                    next.saturating_sub(u64::from(lblk))
                        .clamp(1, u64::from(max)),
                );
                Ok(Mapping::Hole { len })
            }
            Found::Extent(e) => {
                let skip = lblk - e.block;
                let run = BlockRun {
                    start: e.start + u64::from(skip),
                    len: (e.len - skip).min(max),
                };
                // The volume's own files lie in blocks that other files must not have.
                if inode.ino == ROOT_INO || inode.ino >= self.vol.geo.first_ino {
                    self.space
                        .check_run(run)
                        .inspect_err(|e| self.vol.report(e))?;
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
        first_from(|at| self.find(inode, body, at, u32::MAX), from)
    }

    /// The number of blocks that the extent tree of a file takes for its nodes; `None` for a block
    /// map.
    ///
    /// # Errors
    /// EUCLEAN when the map is damaged.
    pub(crate) fn tree_nodes(&self, inode: &Inode, body: &InodeBody) -> Result<Option<u64>> {
        match MapKind::of(inode, body)? {
            MapKind::Extents => {
                let nodes = extents::Stored::new(self, inode, body);
                extents::count_nodes(&nodes, body.i_block()).map(Some)
            }
            MapKind::Blocks => Ok(None),
        }
    }

    pub(in crate::data) fn tree_depth(&self, body: &InodeBody) -> u16 {
        NodeRef::new(body.i_block()).map_or(0, |n| n.depth())
    }

    /// Largest size of this file, bytes.
    pub(crate) fn max_size_of(&self, body: &InodeBody) -> u64 {
        self.max_size(body.flags().contains(InodeFlags::EXTENTS))
    }

    /// The largest size of a file with extents, or with a block map, bytes.
    pub(crate) fn max_size(&self, extents: bool) -> u64 {
        if extents {
            u64::from(u32::MAX) << self.vol.geo.block_bits
        } else {
            Shape::new(self.vol.geo.block_size).max_file_size(self.vol.geo.huge_file())
        }
    }

    /// Credits to change the inode's map in one place, including the inode.
    pub(crate) fn map_credits(&self, body: &InodeBody) -> Credits {
        if body.flags().contains(InodeFlags::EXTENTS) {
            extents::edit_credits(self.tree_depth(body))
        } else {
            blockmap::EDIT_CREDITS
        }
    }

    /// The most blocks that the map takes for itself when `blocks` consecutive file blocks are
    /// mapped, or become written.
    pub(crate) fn map_space(&self, body: &InodeBody, blocks: u64) -> u64 {
        if body.flags().contains(InodeFlags::EXTENTS) {
            extents::edit_blocks(self.tree_depth(body))
        } else {
            blockmap::node_space(Shape::new(self.vol.geo.block_size), blocks)
        }
    }

    /// The most blocks that one call can map from file block `lblk` on.
    pub(crate) fn map_room(&self, body: &InodeBody, lblk: u32) -> u32 {
        if body.flags().contains(InodeFlags::EXTENTS) {
            return u32::MAX;
        }
        let leaf = Shape::new(self.vol.geo.block_size).leaf(u64::from(lblk));
        u32::try_from(leaf.end - u64::from(lblk)).unwrap_or(u32::MAX)
    }

    /// Initialises the map of a new inode: an extent tree if the volume has extents.
    pub(crate) fn init_map(&self, body: &mut InodeBody) -> Result<()> {
        let extents = self.vol.geo.incompat.contains(Incompat::EXTENTS);
        let mut flags = body.flags();
        flags.set(InodeFlags::EXTENTS, extents);
        body.set_flags(flags);
        if extents {
            NodeMut::init(body.i_block_mut(), 0)?;
        } else {
            body.i_block_mut().fill(0);
        }
        Ok(())
    }

    /// Lets `f` change the inode's map, and counts blocks that the map allocated or freed for
    /// itself. The caller writes the inode afterwards, also after an error. If the device fails
    /// with the map half changed, the journal stops.
    pub(crate) fn edit_map<R>(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        f: impl FnOnce(&mut dyn EditMap) -> Result<R>,
    ) -> Result<R> {
        let root: SmallVec<[u8; 64]> = SmallVec::from_slice(body.i_block());
        let (blocks, result) = match MapKind::of(inode, body)? {
            MapKind::Extents => {
                let nodes = extents::Changing::new(self, h, inode, body);
                let result = Tree::open(&nodes, body.i_block_mut()).and_then(|mut map| f(&mut map));
                ((nodes.blocks.delta(), nodes.blocks.has_changed()), result)
            }
            MapKind::Blocks if self.vol.geo.ratio() > 1 => {
                return Err(FsError::Unsupported(format!(
                    "changing inode {}, which has a block map, on a volume with clusters (bigalloc)",
                    inode.ino
                )));
            }
            MapKind::Blocks => {
                let nodes = blockmap::Changing::new(self, h, inode);
                let result = f(&mut BlockMap::open(&nodes, body.i_block_mut()));
                ((nodes.blocks.delta(), nodes.blocks.has_changed()), result)
            }
        };
        let (delta, has_changed) = blocks;
        if let Err(e @ FsError::Device(_)) = &result
            && (has_changed || *root != *body.i_block())
        {
            self.vol.half_done(e);
        }
        body.add_blocks(delta)?;
        result
    }

    /// A block of a directory.
    ///
    /// # Errors
    /// EUCLEAN if it is not mapped.
    pub(crate) fn dir_block(
        &self,
        inode: &Inode,
        body: &InodeBody,
        lblk: u32,
    ) -> Result<Arc<Block>> {
        if let Some(nr) = inode.places.get(lblk) {
            debug_assert!(
                self.dir_place(inode, body, lblk)
                    .ok()
                    .is_none_or(|at| at == Some(nr)),
                "block {lblk} of directory {} is no longer at {nr}",
                inode.ino
            );
            return Ok(self.vol.cache.read(nr)?);
        }
        let Some(nr) = self.dir_place(inode, body, lblk)? else {
            let e = FsError::corrupt(
                "directory",
                0,
                format!("inode {} has a hole at block {lblk}", inode.ino),
            );
            self.vol.report(&e);
            return Err(e);
        };
        inode.places.note(lblk, nr);
        Ok(self.vol.cache.read(nr)?)
    }

    /// The place of a directory's block according to its map; `None` if it is not mapped.
    fn dir_place(&self, inode: &Inode, body: &InodeBody, lblk: u32) -> Result<Option<BlockNr>> {
        Ok(match self.map(inode, body, lblk, 1)? {
            Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } => Some(start),
            _ => None,
        })
    }

    /// Appends a zeroed block to a directory and writes the inode (`credits::APPEND_DIR_BLOCK`).
    /// The caller has reserved the space.
    ///
    /// # Errors
    /// ENOSPC, EFBIG; the directory is unchanged then.
    pub(crate) fn append_dir_block(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<(u32, Arc<Block>)> {
        let size = body.size();
        let lblk = size >> self.vol.geo.block_bits;
        if lblk >= LOGICAL_END {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let lblk = bounded32(lblk);
        let nr = self.add_meta_block(h, inode, body, lblk)?;
        let block = self.vol.cache.get(nr);
        h.create(&block)?;
        body.set_size(size + u64::from(self.vol.geo.block_size));
        self.inodes.write_inode_data(h, inode, body)?;
        Ok((lblk, block))
    }

    /// Maps one new block of a directory or symbolic link, near the one before it.
    pub(crate) fn add_meta_block(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
    ) -> Result<BlockNr> {
        let space = self
            .alloc_for(h, inode, body, (lblk, 1), 1, AllocFor::Meta)?
            .ok_or(FsError::Errno(libc::ENOSPC))?;
        self.map_new(h, inode, body, lblk, &space, false)?;
        Ok(space.run.start)
    }

    /// The goal for file block `lblk`: the block behind its predecessor.
    pub(in crate::data) fn goal_for(
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

    /// Maps space that was just allocated, and counts it. If that fails, frees it again.
    pub(crate) fn map_new(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        lblk: u32,
        space: &Space,
        unwritten: bool,
    ) -> Result<()> {
        let new = Extent {
            block: lblk,
            len: space.run.len,
            start: space.run.start,
            unwritten,
        };
        let counted = body.add_blocks(space.taken());
        let result = match counted {
            Ok(()) => self
                .edit_map(h, inode, body, |map| map.insert(new))
                .inspect_err(|_| {
                    // It was added just before, so subtracting it cannot fail.
                    let _ = body.add_blocks(-space.taken());
                }),
            Err(e) => Err(e),
        };
        result.inspect_err(|_| {
            let freed = space
                .new
                .map(|run| self.space.free_blocks(h, run, Freed::Data));
            if let Some(Err(e)) = freed {
                self.vol.report(&e);
            }
        })
    }
}
