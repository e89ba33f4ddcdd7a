//! Group descriptors on the volume, and the places of blocks and inodes in groups.

use std::sync::Arc;

use stetfs_journal::{Block, Handle};
use stetfs_sync::MutexGuard;

use super::allocator::Allocator;
use super::group::{Counts, GroupState};
use crate::error::{FsError, Result};
use crate::types::BlockNr;

/// Bytes of an inode table that are read at a time, aligned. This is 32 blocks of 4 KiB, as the
/// kernel's `inode_readahead_blks`. It is no more with larger blocks, because the caller waits for
/// the read.
const READ_BESIDE: u64 = 128 << 10;

impl Allocator {
    /// Puts a group with a damaged bitmap out of use: nothing is allocated there any more, and the
    /// damage is noted. `before` are the counts before the change.
    pub(super) fn out_of_use(
        &self,
        group: u32,
        before: Counts,
        st: MutexGuard<'_, GroupState>,
        e: &FsError,
    ) {
        let published = self.groups.publish(group, before, &st);
        drop(st);
        self.vol.report(e);
        if let Err(e) = published {
            self.vol.report(&e);
        }
    }

    /// The place of a group's descriptor: block, byte offset in it.
    fn desc_place(&self, group: u32) -> Result<(BlockNr, usize)> {
        self.vol.geo.layout.desc_position(group).ok_or_else(|| {
            FsError::corrupt("group descriptor", 0, format!("no place for group {group}"))
        })
    }

    /// The block of a group's descriptor. It is read before the group changes (space.S5).
    pub(super) fn desc_block(&self, group: u32) -> Result<Option<Arc<Block>>> {
        if self.vol.opts.canary.late_descriptor {
            return Ok(None);
        }
        Ok(Some(self.vol.cache.read(self.desc_place(group)?.0)?))
    }

    /// Puts a group's descriptor into the transaction, checksum included. One credit.
    pub(super) fn write_desc(
        &self,
        h: &Handle<'_>,
        group: u32,
        st: &mut GroupState,
        block: Option<&Arc<Block>>,
    ) -> Result<()> {
        let (nr, offset) = self.desc_place(group)?;
        let block = block.map_or_else(|| self.vol.cache.read(nr), |block| Ok(Arc::clone(block)))?;
        let mut page = h.modify(&block)?;
        let size = usize::from(self.vol.geo.desc_size);
        let bytes = page
            .get_mut(offset..offset + size)
            .ok_or_else(|| FsError::corrupt("group descriptor", nr, "past the end of its block"))?;
        st.desc
            .encode_with_checksum(bytes, group, &self.vol.geo.checksums)?;
        drop(page);
        if self.vol.opts.canary.unlogged_descriptor {
            h.leave_out(&block);
        }
        Ok(())
    }

    /// The group and bit of a block that a structure on the volume names.
    pub(super) fn group_of(&self, nr: BlockNr) -> Result<(u32, u32)> {
        match (
            self.vol.geo.layout.group_of_block(nr),
            self.vol.geo.layout.bit_of_block(nr),
        ) {
            (Some(group), Some(bit)) => Ok((group, bit)),
            _ => Err(FsError::corrupt("block number", nr, "not on the volume")),
        }
    }

    /// The place of the inode `ino`: block of the inode table, byte offset in it.
    pub(crate) fn inode_place(&self, ino: u32) -> Result<(BlockNr, usize)> {
        let (table, index) = self.table_of(ino)?;
        Ok(self.vol.geo.layout.inode_position(table, index))
    }

    /// First block of the inode table of `ino`, and its index in the table.
    fn table_of(&self, ino: u32) -> Result<(BlockNr, u32)> {
        let located = self.vol.geo.layout.locate_inode(ino);
        let (group, index) = located.ok_or(FsError::Errno(libc::ESTALE))?;
        Ok((self.groups.table(group)?, index))
    }

    /// The blocks of the inode table that are read together with that of the inode `ino`: the
    /// first, and their number. Neighbours of an inode are often needed with it.
    pub(crate) fn inodes_beside(&self, ino: u32) -> Result<(BlockNr, u64)> {
        let layout = &self.vol.geo.layout;
        let (table, index) = self.table_of(ino)?;
        let (nr, _) = layout.inode_position(table, index);
        let (last, _) = layout.inode_position(table, layout.inodes_per_group.saturating_sub(1));
        let window = (READ_BESIDE / u64::from(self.vol.geo.block_size)).max(1);
        let first = (nr / window * window).max(table);
        let end = (first / window + 1).saturating_mul(window);
        Ok((first, end.min(last.saturating_add(1)).saturating_sub(first)))
    }
}
