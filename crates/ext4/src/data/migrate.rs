//! Maps that take on their other form (`chattr +e`, `chattr -e`): block numbers become extents, and
//! one short extent becomes block numbers. No block of the file moves.
//!
//! All of it is in one transaction. What it takes is known, and promised, before anything changes;
//! what no transaction of this journal can hold is refused.

use std::collections::BTreeSet;

use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::blockmap::{DIRECT, set_pointer};
use stetfs_ondisk::ext4::extent::{Extent, LOGICAL_END, MAX_LEN, NodeMut, max_entries};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::{I_BLOCK_LEN, InodeFlags};
use stetfs_ondisk::num::{bounded32, count32};

use super::blockmap::{self, Named};
use super::nodes::NodeBlocks;
use super::once::Runs;
use super::store::DataStore;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, is_ordinary};
use crate::space::{BlockRun, credits};
use crate::types::Ctx;

/// A map in its other form, and what it takes to get there.
pub(crate) struct Migration {
    /// What is mapped, in the order of the file.
    extents: Vec<Extent>,
    /// Indirect blocks, which are freed.
    indirect: Vec<BlockNr>,
    /// Blocks that a tree of extents takes for itself, at most, before any is freed.
    nodes: u64,
    /// With the inode.
    credits: Credits,
}

impl Migration {
    /// Blocks by which the file grows, at most.
    fn growth(&self) -> u64 {
        self.nodes.saturating_sub(self.indirect.len() as u64)
    }
}

/// What a block map names, as it is found.
#[derive(Default)]
struct Listed {
    extents: Vec<Extent>,
    indirect: Vec<BlockNr>,
    /// Where those lie.
    groups: BTreeSet<u32>,
    /// All of that but for the last extent, which may grow yet.
    seen: Runs,
}

/// Blocks that a tree takes for itself to which so many extents are added one behind the other.
fn tree_space(block_size: u32, extents: usize) -> u64 {
    let root = u64::from(max_entries(I_BLOCK_LEN));
    // A full node gives its last entry away when another is to come. Where the root is full a node
    // takes what is in there, and goes on from that.
    let filled = u64::from(max_entries(block_size as usize)).saturating_sub(1);
    let (mut entries, mut nodes) = (extents as u64, 0);
    while entries > root {
        entries = entries.div_ceil(filled.max(root)) + 1;
        nodes += entries;
    }
    nodes
}

impl Fs {
    /// What it takes to give the map of a file or directory its other form.
    ///
    /// # Errors
    /// EBUSY in an atomic group; those of the store's plan.
    pub(crate) fn plan_migration(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
        inode.check_alone()?;
        self.vol.noted(self.data.plan_migration(inode, body))
    }

    /// Sets these flags, with the form of the map that they say and the time of the change.
    ///
    /// # Errors
    /// EDQUOT, ENOSPC: nothing has changed then.
    pub(crate) fn migrate(
        &self,
        ctx: &Ctx,
        inode: &Inode,
        body: &mut InodeBody,
        new: InodeFlags,
        migration: &Migration,
    ) -> Result<()> {
        let quota = self.promise(ctx, body.owner(), migration.growth(), 0)?;
        quota.give(body);
        let is_privileged = self.space.privileged(ctx);
        let _room = self.space.reserve(migration.nodes, is_privileged)?;
        let h = self.vol.journal.begin(migration.credits)?;
        body.set_flags(new);
        body.touch(self.vol.now());
        self.vol
            .whole(|| self.data.migrate(&h, inode, body, migration))
    }
}

impl DataStore {
    /// What it takes to give the map of a file or directory its other form.
    ///
    /// # Errors
    /// EINVAL without the feature `extents`, and for what has no map; EOPNOTSUPP where it cannot
    /// be; ENOSPC where no transaction can hold it; EUCLEAN.
    fn plan_migration(&self, inode: &Inode, body: &InodeBody) -> Result<Migration> {
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

    /// From extents: as the kernel, where there is one at most, of the blocks that the inode has
    /// numbers for. All of it is written: a block map has no other blocks.
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

    /// From a block map.
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

    /// Takes one more block in.
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

    /// Sees to it that blocks are those of a file, and that the map did not name them before.
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

    /// Gives the map the form that the inode's flags say it has, and writes the inode. The handle
    /// has the credits, and the space is promised.
    ///
    /// # Errors
    /// What must not happen any more.
    fn migrate(
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

/// Makes a map of nothing but the inode's own block numbers.
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
