//! Directories without an index: blocks searched from first to last.

use std::sync::Arc;

use stetfs_journal::{Block, Handle};
use stetfs_ondisk::ext4::dirent;
use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::htree;

use super::{Format, Found, NewEntry, Place, Plan, WHAT, bytes, in_block};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;
use crate::verified;

impl Namespace {
    /// A block of entries. Its checksum and entries are checked.
    pub(super) fn dir_leaf(
        &self,
        inode: &Inode,
        body: &InodeBody,
        format: Format,
        lblk: u32,
    ) -> Result<Arc<Block>> {
        let block = self.data.dir_block(inode, body, lblk)?;
        if block.verified() != verified::DIR_LEAF {
            let view = bytes(&block)?;
            let mut checked = dirent::check(&view, &format.layout);
            if let (Ok(()), Some(seed)) = (&checked, format.seed) {
                checked = dirent::verify_checksum(&view, seed);
            }
            self.vol.noted(in_block(&block, checked))?;
            // An index node looks like a leaf without names. A damaged index may lead to it as a
            // leaf.
            if self.dir_is_indexed(body) && htree::looks_like_node(&view, &format.index) {
                let detail = "an index block instead of a block of entries";
                return self
                    .vol
                    .noted(Err(FsError::corrupt(WHAT, block.nr(), detail)));
            }
            drop(view);
            block.set_verified(verified::DIR_LEAF);
        }
        Ok(block)
    }

    /// The number of blocks of a directory that is searched block by block. A size that is not a
    /// whole number of blocks is damage.
    pub(super) fn linear_blocks(&self, inode: &Inode, body: &InodeBody) -> Result<u32> {
        let size = body.size();
        if size == 0 || !size.is_multiple_of(u64::from(self.vol.geo.block_size)) {
            return self.vol.noted(Err(FsError::corrupt(
                WHAT,
                0,
                format!("directory {} has the size {size}", inode.ino),
            )));
        }
        Ok(self.dir_blocks(body))
    }

    pub(super) fn linear_find(
        &self,
        inode: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let format = self.dir_format(inode, body);
        for lblk in 0..self.linear_blocks(inode, body)? {
            let block = self.dir_leaf(inode, body, format, lblk)?;
            if let Some(found) = self.find_in(format, &block, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(super) fn linear_plan(&self, inode: &Inode, body: &InodeBody, name: &[u8]) -> Result<Plan> {
        let format = self.dir_format(inode, body);
        let blocks = self.linear_blocks(inode, body)?;
        let mut room = None;
        for lblk in 0..blocks {
            let block = self.dir_leaf(inode, body, format, lblk)?;
            if self.find_in(format, &block, name)?.is_some() {
                return Err(FsError::Errno(libc::EEXIST));
            }
            if room.is_none() && self.has_room(format, &block, name)? {
                room = Some(block);
            }
        }
        let plan = match room {
            Some(block) => Plan {
                place: Place::Room(block),
                new_blocks: 0,
                changed_blocks: 1,
            },
            None if blocks == 1 && self.vol.geo.compat.contains(Compat::DIR_INDEX) => {
                self.index_check_make(inode, body)?;
                Plan {
                    place: Place::MakeIndex,
                    new_blocks: 2,
                    changed_blocks: 1,
                }
            }
            None => Plan {
                place: Place::NewBlock,
                new_blocks: 1,
                changed_blocks: 0,
            },
        };
        self.dir_check_growth(body, plan.new_blocks)?;
        Ok(plan)
    }

    /// Checks that the directory can grow by `more` blocks.
    ///
    /// # Errors
    /// ENOSPC if it would be too large.
    pub(super) fn dir_check_growth(&self, body: &InodeBody, more: u32) -> Result<()> {
        let size = body
            .size()
            .saturating_add(u64::from(more) << self.vol.geo.block_bits);
        if more == 0 || size < self.vol.geo.max_dir_size() {
            Ok(())
        } else {
            Err(FsError::Errno(libc::ENOSPC))
        }
    }

    pub(super) fn linear_append(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let format = self.dir_format(inode, body);
        let (_, block) = self.append_leaf(h, inode, body, format)?;
        self.dir_change(h, format, &block, |b| {
            dirent::fill(b, &format.layout, [(new.ino, new.kind, new.name)]).map(drop)
        })
    }
}
