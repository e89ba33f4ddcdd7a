//! Storage of attributes: reading them, and changing them in their places.

use std::sync::Arc;

use stetfs_journal::{Block, Credits, Handle};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::ext4::xattr::{self, Attrs, BlockHeader};

use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody, InodeStore};
use crate::space::credits::{FREE_BLOCKS, WRITE_INODE};
use crate::space::{AllocFor, BlockRun, Freed};
use crate::types::BlockNr;
use crate::verified;
use stetfs_ondisk::num::count32;

use super::layout::{BlockChange, Layout, Stored};
use super::value::ValueRef;

/// The name of an attribute block in errors.
const WHAT: &str = "attribute block";

/// Credits to release an attribute block.
const DROP_CREDITS: Credits = 1 + FREE_BLOCKS;

fn in_block<T>(nr: BlockNr, result: Result<T, OnDiskError>) -> Result<T> {
    result.map_err(|e| FsError::corrupt(WHAT, nr, e.to_string()))
}

impl InodeStore {
    /// Reads the attributes of an inode whose lock is held.
    ///
    /// # Errors
    /// Damage, naming the block; device errors.
    pub(crate) fn xattr_load(&self, inode: &Inode, body: &InodeBody) -> Result<Stored> {
        let area = body.xattr_area().unwrap_or_default().to_vec();
        if let Err(e) = Attrs::in_inode(&area) {
            let detail = format!("attributes of inode {}: {e}", inode.ino);
            return self.vol.noted(Err(FsError::corrupt("inode", 0, detail)));
        }
        let block = match body.file_acl() {
            0 => None,
            nr => {
                let block = self.xattr_block(nr)?;
                block.page()
            }
        };
        Ok(Stored { area, block })
    }

    /// An attribute block, checked.
    fn xattr_block(&self, nr: BlockNr) -> Result<Arc<Block>> {
        self.vol
            .noted(self.space.check_run(BlockRun { start: nr, len: 1 }))?;
        let block = self.vol.cache.read(nr)?;
        if block.verified() != verified::XATTR {
            let page = block
                .page()
                .ok_or_else(|| FsError::corrupt(WHAT, nr, "the block has no content"))?;
            let mut checked = Attrs::in_block(&page).map(drop);
            if checked.is_ok() && self.vol.geo.metadata_csum() {
                checked = xattr::verify_block_checksum(&page, self.vol.geo.csum_seed, nr);
            }
            self.vol.noted(in_block(nr, checked))?;
            block.set_verified(verified::XATTR);
        }
        Ok(block)
    }

    /// Applies a change of attributes. The caller writes the inode, has [`Layout::credits`], and
    /// has reserved [`Layout::blocks`].
    pub(crate) fn xattr_apply(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        layout: &Layout,
    ) -> Result<()> {
        let values = [&layout.left_inode, &layout.left_block, &layout.copied];
        if !matches!(layout.block, BlockChange::Keep)
            || !layout.added.is_empty()
            || values.iter().any(|v| !v.is_empty())
        {
            self.note_change(h, inode, MetadataLedger::attributes);
        }
        let values = self.lock_values();
        let shared = match &layout.block {
            BlockChange::Keep => false,
            BlockChange::Drop => self.xattr_leave(h, body)?,
            BlockChange::Write(bytes) => self.xattr_write(h, inode, body, bytes)?,
        };
        let (more, fewer) = match shared {
            true => (&layout.copied[..], &[][..]),
            false => (&[][..], &layout.left_block[..]),
        };
        more.iter().try_for_each(|v| self.value_ref(h, v))?;
        for value in layout.left_inode.iter().chain(fewer) {
            self.value_unref(h, value)?;
        }
        let mut charge = 0;
        for new in &layout.added {
            self.value_adopt(h, new)?;
            charge += self.value_charge(new.size());
        }
        charge -= self.values_charge(&layout.left_inode) + self.values_charge(&layout.left_block);
        body.add_blocks(charge)?;
        let gone = layout.left_inode.len() + layout.left_block.len();
        body.tally.values += i64::from(count32(layout.added.len())) - i64::from(count32(gone));
        drop(values);
        let Some(new) = &layout.area else {
            return Ok(());
        };
        match body.xattr_area_mut() {
            Some(area) if area.len() == new.len() => area.copy_from_slice(new),
            _ => {
                let detail = format!(
                    "inode {} has no room for {} bytes of attributes",
                    inode.ino,
                    new.len()
                );
                return Err(FsError::corrupt("inode", 0, detail));
            }
        }
        Ok(())
    }

    /// Gives the inode an attribute block with this content: rewrites its own block, or makes a new
    /// one if it has none or shares it. Returns whether it shared its block.
    fn xattr_write(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        bytes: &[u8],
    ) -> Result<bool> {
        let nr = body.file_acl();
        if nr != 0 && !self.xattr_unshare(h, nr, Some(bytes))? {
            return Ok(false);
        }
        let goal = (nr != 0).then_some(nr);
        let run = self.space.alloc_blocks(h, inode, goal, 1, AllocFor::Meta)?;
        let block = self.vol.cache.get(run.start);
        let mut page = h.create(&block)?;
        page.copy_from_slice(bytes);
        let sealed = self.xattr_seal(&mut page, run.start);
        drop(page);
        sealed?;
        block.set_verified(verified::XATTR);
        if nr == 0 {
            body.add_blocks(i64::from(run.len))?;
        }
        body.set_file_acl(run.start);
        Ok(nr != 0)
    }

    /// Takes one reference from a shared block, and returns `true`. A block that is not shared gets
    /// the content, if any. The block is locked during the decision, because other inodes may leave
    /// it at the same time.
    fn xattr_unshare(&self, h: &Handle<'_>, nr: BlockNr, content: Option<&[u8]>) -> Result<bool> {
        let block = self.xattr_block(nr)?;
        let mut page = h.modify(&block)?;
        let refcount = in_block(nr, BlockHeader::read(&page))?.refcount;
        let shared = refcount > 1;
        if shared {
            in_block(nr, xattr::set_refcount(&mut page, refcount - 1))?;
        } else if let Some(content) = content {
            page.copy_from_slice(content);
        }
        self.xattr_seal(&mut page, nr)?;
        Ok(shared)
    }

    fn xattr_seal(&self, page: &mut [u8], nr: BlockNr) -> Result<()> {
        if self.vol.geo.metadata_csum() {
            in_block(
                nr,
                xattr::update_block_checksum(page, self.vol.geo.csum_seed, nr),
            )?;
        }
        Ok(())
    }

    /// Removes all attributes from an inode that is being deleted, in as many transactions as
    /// needed, and writes the inode.
    pub(crate) fn xattr_drop(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        loop {
            // One reference at a time: there may be many.
            while self.has_values() {
                let stored = self.xattr_load(inode, body)?;
                let Some((index, name)) = stored.first_value()? else {
                    break;
                };
                let layout = stored.with(self.vol.geo.block_size as usize, index, &name, None)?;
                h.restart(layout.credits() + WRITE_INODE)?;
                self.xattr_apply(h, inode, body, &layout)?;
                self.store_inode(h, inode, body)?;
            }
            h.restart(DROP_CREDITS + WRITE_INODE)?;
            let _values = self.lock_values();
            // The other inodes that shared the block may all have left it meanwhile.
            if self.has_values() {
                let stored = self.xattr_load(inode, body)?;
                if stored.first_value()?.is_some() {
                    continue;
                }
                // The remaining values belong to the inodes that share the block.
                let values = ValueRef::all(&stored.all()?);
                body.add_blocks(-self.values_charge(&values))?;
                body.tally.values -= i64::from(count32(values.len()));
            }
            self.xattr_leave(h, body)?;
            return self.store_inode(h, inode, body);
        }
    }

    /// Releases the inode's attribute block: it is freed, or has one reference fewer if other
    /// inodes share it. A block that is not shared refers to no values. Returns whether it was
    /// shared. The caller writes the inode.
    fn xattr_leave(&self, h: &Handle<'_>, body: &mut InodeBody) -> Result<bool> {
        let nr = body.file_acl();
        if nr == 0 {
            return Ok(false);
        }
        let shared = self.xattr_unshare(h, nr, None)?;
        if !shared {
            self.space.free_cluster(h, nr, Freed::Journaled)?;
        }
        body.set_file_acl(0);
        body.add_blocks(-i64::from(self.vol.geo.ratio()))?;
        Ok(shared)
    }
}
