//! Migration between the two kinds of map (`chattr +e`, `chattr -e`): a block map becomes an extent
//! tree, and one short extent becomes a block map. No block of the file moves.
//!
//! A migration is one transaction. Its credits and space are computed, and promised, before
//! anything changes. A migration that no transaction of this journal can hold is refused.

use std::collections::BTreeSet;

use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::blockmap::{DIRECT, set_pointer};
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END, MAX_LEN, NodeMut, max_entries};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::{I_BLOCK_LEN, InodeFlags};
use stetfs_ondisk::num::{bounded32, count32};

use crate::data::maps::blockmap::{self, Named};
use crate::data::maps::nodes::NodeBlocks;
use crate::data::maps::once::Runs;
use crate::data::store::DataStore;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody, is_ordinary};
use crate::space::{BlockRun, credits};

/// A planned migration, with its cost.
pub(crate) struct Migration {
    /// The mapped extents, in file order.
    extents: Vec<Extent>,
    /// Indirect blocks to be freed.
    indirect: Vec<BlockNr>,
    /// The most blocks that an extent tree needs for its nodes, before any block is freed.
    pub(crate) nodes: u64,
    /// Credits, including the inode.
    pub(crate) credits: Credits,
}

impl Migration {
    /// The most blocks by which the file grows.
    pub(crate) fn growth(&self) -> u64 {
        self.nodes.saturating_sub(self.indirect.len() as u64)
    }
}

/// The blocks that a block map names, while they are collected.
#[derive(Default)]
struct Listed {
    extents: Vec<Extent>,
    indirect: Vec<BlockNr>,
    /// Groups of the indirect blocks.
    groups: BTreeSet<u32>,
    /// All blocks found so far, except the last extent, which may still grow.
    seen: Runs,
}

/// Blocks of a tree after this many extents were appended one after the other.
fn tree_space(block_size: u32, extents: usize) -> u64 {
    let root = u64::from(max_entries(I_BLOCK_LEN));
    // A full node gives its last entry to the next node when another entry comes. When the root is
    // full, its entries move to a new node, which then continues to fill.
    let filled = u64::from(max_entries(block_size as usize)).saturating_sub(1);
    let (mut entries, mut nodes) = (extents as u64, 0);
    while entries > root {
        entries = entries.div_ceil(filled.max(root)) + 1;
        nodes += entries;
    }
    nodes
}

impl DataStore {
    /// The migration of a file's or directory's map to the other kind.
    ///
    /// # Errors
    /// EINVAL without the feature `extents`, and for an inode without a map; EOPNOTSUPP where it is
    /// not possible; ENOSPC where no transaction can hold it; EUCLEAN.
    pub(crate) fn plan_migration(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
        let has_extents = self.vol.geo.incompat.contains(Incompat::EXTENTS);
        if !has_extents || body.is_inline() {
            return Err(FsError::Errno(libc::EINVAL));
        }
        let is_own = !is_ordinary(&self.vol.geo, inode.ino) || body.is_value();
        if is_own || !(body.is_regular() || body.is_dir()) || self.vol.geo.ratio() > 1 {
            return Err(FsError::Errno(libc::EOPNOTSUPP));
        }
        match body.flags().contains(InodeFlags::EXTENTS) {
            true => self.plan_block_map(inode, body),
            false => self.plan_tree(inode, body),
        }
    }

    /// Migration from extents. As in the kernel, it is possible for one extent at most, of blocks
    /// that the inode itself has numbers for. The extent must be written: a block map has no
    /// unwritten blocks.
    fn plan_block_map(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
        let cannot = FsError::Errno(libc::EOPNOTSUPP);
        let is_small =
            self.vol.geo.blocks_count <= u64::from(u32::MAX) && body.size() <= self.max_size(false);
        let first = self.next_extent(inode, body, 0)?;
        let fits = |e: &Extent| !e.unwritten && e.logical_end() <= DIRECT as u64;
        if !is_small || self.tree_depth(body) > 0 || !first.as_ref().is_none_or(fits) {
            return Err(cannot);
        }
        if let Some(e) = &first {
            if self.next_extent(inode, body, e.logical_end())?.is_some() {
                return Err(cannot);
            }
            self.space.check_run(BlockRun {
                start: e.start,
                len: e.len,
            })?;
        }
        Ok(Migration {
            extents: first.into_iter().collect(),
            indirect: Vec::new(),
            nodes: 0,
            credits: credits::WRITE_INODE,
        })
    }

    /// Migration from a block map.
    fn plan_tree(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
        if body.size() > self.max_size(true) {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let most = self.vol.journal.max_credits();
        let mut listed = Listed::default();
        let map = blockmap::Stored::new(self, inode);
        blockmap::all(&map, body.i_block(), &mut |named| {
            self.list(inode, &mut listed, named)?;
            match self.tree_credits(&listed) > most {
                true => Err(FsError::Errno(libc::ENOSPC)),
                false => Ok(()),
            }
        })?;
        if let Some(last) = listed.extents.last().copied() {
            self.check_new(inode, &mut listed.seen, &last)?;
        }
        Ok(Migration {
            nodes: tree_space(self.vol.geo.block_size, listed.extents.len()),
            credits: self.tree_credits(&listed),
            extents: listed.extents,
            indirect: listed.indirect,
        })
    }

    /// Adds one block.
    fn list(&self, inode: &Inode, listed: &mut Listed, named: Named) -> Result<()> {
        let one = |block, start| Extent {
            block,
            len: 1,
            start,
            unwritten: false,
        };
        let (lblk, nr) = match named {
            Named::Node(nr) => {
                self.check_new(inode, &mut listed.seen, &one(0, nr))?;
                listed.indirect.push(nr);
                listed.groups.extend(self.vol.geo.layout.group_of_block(nr));
                return Ok(());
            }
            Named::Data(lblk, nr) => (lblk, nr),
        };
        if lblk >= LOGICAL_END {
            return Err(FsError::Errno(libc::EFBIG));
        }
        let next = one(bounded32(lblk), nr);
        match listed.extents.last_mut() {
            Some(last) if last.is_continued_by(&next) && last.len < MAX_LEN => last.len += 1,
            last => {
                if let Some(last) = last.copied() {
                    self.check_new(inode, &mut listed.seen, &last)?;
                }
                listed.extents.push(next);
            }
        }
        Ok(())
    }

    /// Checks that blocks may belong to a file, and that the map did not name them before.
    fn check_new(&self, inode: &Inode, seen: &mut Runs, e: &Extent) -> Result<()> {
        self.space.check_run(BlockRun {
            start: e.start,
            len: e.len,
        })?;
        seen.add_new(inode, e.start, u64::from(e.len))
    }

    /// Credits to build a tree, to free the indirect blocks, and to write the inode.
    fn tree_credits(&self, listed: &Listed) -> Credits {
        let nodes = tree_space(self.vol.geo.block_size, listed.extents.len());
        let nodes = Credits::try_from(nodes).unwrap_or(Credits::MAX);
        let groups = count32(listed.groups.len());
        let allocated = nodes
            .min(self.vol.geo.groups)
            .saturating_mul(credits::ALLOC_BLOCKS);
        credits::WRITE_INODE
            .saturating_add(nodes)
            .saturating_add(allocated)
            .saturating_add(groups.saturating_mul(credits::FREE_BLOCKS))
    }

    /// Rebuilds the map as the kind that the inode's flags now name, and writes the inode. The
    /// handle has the credits, and the space is promised.
    ///
    /// # Errors
    /// Only failures that the plan excludes.
    pub(crate) fn migrate(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        migration: &Migration,
    ) -> Result<()> {
        match body.flags().contains(InodeFlags::EXTENTS) {
            true => {
                NodeMut::init(body.i_block_mut(), 0)?;
                self.edit_map(h, inode, body, |map| {
                    migration.extents.iter().try_for_each(|e| map.insert(*e))
                })?;
                let indirect = NodeBlocks::new(self, h, inode);
                migration
                    .indirect
                    .iter()
                    .try_for_each(|nr| indirect.free(*nr))?;
                body.add_blocks(indirect.delta())?;
            }
            false => name_blocks(body.i_block_mut(), &migration.extents)?,
        }
        self.inodes.note_change(h, inode, MetadataLedger::reformed);
        self.inodes.write_inode_data(h, inode, body)
    }
}

/// Makes a map that consists of the inode's own block numbers.
fn name_blocks(root: &mut [u8], extents: &[Extent]) -> Result<()> {
    root.fill(0);
    for e in extents {
        for (lblk, nr) in (e.block as usize..DIRECT).zip(e.start..e.start + u64::from(e.len)) {
            let number = u32::try_from(nr).map_err(|_| FsError::Errno(libc::EFBIG))?;
            set_pointer(root, lblk, number).ok_or(FsError::Errno(libc::EFBIG))?;
        }
    }
    Ok(())
}
