//! Where attributes are stored, and changing them there.

use std::sync::Arc;

use stetfs_cache::PageRef;
use stetfs_journal::{Block, Credits, Handle};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::ext4::xattr::{self, Attr, Attrs, BlockHeader, Value};

use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, InodeStore};
use crate::quota::Promise;
use crate::space::credits::{ALLOC_BLOCKS, FREE_BLOCKS, WRITE_INODE};
use crate::space::{AllocFor, BlockRun, Freed};
use crate::types::{BlockNr, Ctx};
use crate::verified;
use stetfs_ondisk::num::count32;

use super::value::{NewValue, REFERENCE, ValueRef};

/// What an attribute block is called in errors.
const WHAT: &str = "attribute block";

/// Credits for the places of a [`Layout`], without the inode: the old block and a new one.
const PLACES: Credits = 2 + ALLOC_BLOCKS + FREE_BLOCKS;
/// Credits to let go of an attribute block.
const DROP_CREDITS: Credits = 1 + FREE_BLOCKS;

/// A copy of the attributes of an inode.
pub(crate) struct Stored {
    /// What follows the inode's fields; empty when there is no room for attributes.
    area: Vec<u8>,
    block: Option<PageRef>,
}

/// Both places anew.
#[derive(Default)]
pub(crate) struct Layout {
    area: Option<Vec<u8>>,
    block: BlockChange,
    /// Values in inodes of their own that are new.
    pub(super) added: Vec<NewValue>,
    /// Those that an entry in the inode referred to, and no longer does.
    left_inode: Vec<ValueRef>,
    /// Those that an entry in the block referred to, and no longer does. It still does if others
    /// share the block.
    left_block: Vec<ValueRef>,
    /// Those that entries of the new block refer to as those of the old one did, if that was
    /// shared.
    copied: Vec<ValueRef>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum BlockChange {
    #[default]
    Keep,
    Drop,
    Write(Vec<u8>),
}

impl Layout {
    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_none() && self.block == BlockChange::Keep
    }

    /// Credits to carry it out, without the inode.
    pub(crate) fn credits(&self) -> Credits {
        let references =
            self.added.len() + self.left_inode.len() + self.left_block.len() + self.copied.len();
        match self.is_empty() {
            true => 0,
            false => PLACES + count32(references) * REFERENCE,
        }
    }

    /// New values in inodes of their own.
    pub(crate) fn values(&self) -> u64 {
        self.added.len() as u64
    }

    /// Blocks that may have to be allocated.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(matches!(self.block, BlockChange::Write(_)))
    }
}

fn in_block<T>(nr: BlockNr, result: Result<T, OnDiskError>) -> Result<T> {
    result.map_err(|e| FsError::corrupt(WHAT, nr, e.to_string()))
}

impl Layout {
    /// The places of an inode that has exactly these attributes, with `room` bytes behind its
    /// fields: in the inode what fits there, the rest in a block.
    ///
    /// # Errors
    /// ENOSPC if they do not fit.
    pub(super) fn of(room: usize, block_size: usize, attrs: &[Attr<'_>]) -> Result<Layout> {
        let (mut in_inode, mut in_block) = (Vec::new(), Vec::new());
        for attr in attrs {
            in_inode.push(*attr);
            if xattr::space(&in_inode) > xattr::inode_room(room) {
                in_block.extend(in_inode.pop());
            }
        }
        let mut layout = Layout::default();
        if !in_inode.is_empty() {
            let mut area = vec![0; room];
            xattr::write_in_inode(&mut area, &in_inode)?;
            layout.area = Some(area);
        }
        if !in_block.is_empty() {
            let mut bytes = vec![0; block_size];
            if !xattr::write_block(&mut bytes, &in_block, 1)? {
                return Err(FsError::Errno(libc::ENOSPC));
            }
            layout.block = BlockChange::Write(bytes);
        }
        Ok(layout)
    }
}

impl Stored {
    fn lists(&self) -> Result<(Attrs<'_>, Option<Attrs<'_>>)> {
        let block = self
            .block
            .as_ref()
            .map(|page| Attrs::in_block(page))
            .transpose()?;
        Ok((Attrs::in_inode(&self.area)?, block))
    }

    /// All attributes.
    pub(crate) fn all(&self) -> Result<Vec<Attr<'_>>> {
        let (inode, block) = self.lists()?;
        Ok(inode
            .iter()
            .chain(block.iter().flat_map(Attrs::iter))
            .collect())
    }

    /// An attribute whose value has an inode of its own: index, name. Those in a block that others
    /// share do not count.
    pub(super) fn first_value(&self) -> Result<Option<(u8, Vec<u8>)>> {
        let (inode, block) = self.lists()?;
        let block = block.filter(|_| !self.is_shared());
        let mut all = inode.iter().chain(block.iter().flat_map(Attrs::iter));
        let found = all.find(|a| ValueRef::of(a).is_some());
        Ok(found.map(|a| (a.index, a.name.to_vec())))
    }

    /// Whether other inodes have the same block. They may leave it at any time, none can join.
    fn is_shared(&self) -> bool {
        let header = self.block.as_ref().map(|page| BlockHeader::read(page));
        matches!(header, Some(Ok(header)) if header.refcount > 1)
    }

    /// The attribute with this name.
    pub(crate) fn find(&self, index: u8, name: &[u8]) -> Result<Option<Attr<'_>>> {
        let (inode, block) = self.lists()?;
        Ok(inode
            .find(index, name)
            .or_else(|| block.and_then(|b| b.find(index, name))))
    }

    /// How the places look after `name` was set to `value` (or removed): in the inode if it fits
    /// there, else in the block. Everything else stays where it is.
    ///
    /// # Errors
    /// ENOSPC if it fits in neither.
    pub(crate) fn with(
        &self,
        block_size: usize,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Layout> {
        self.with_value(block_size, index, name, value.map(Value::Bytes), 0)
    }

    /// [`with`](Self::with) for a value that may have an inode of its own. One that has none goes
    /// to the block only if the block's first `reserve` bytes stay free of values.
    pub(super) fn with_value(
        &self,
        block_size: usize,
        index: u8,
        name: &[u8],
        value: Option<Value<'_>>,
        reserve: usize,
    ) -> Result<Layout> {
        let (inode, block) = self.lists()?;
        let is_it = |a: &Attr<'_>| a.index == index && a.name == name;
        let old = inode
            .iter()
            .chain(block.iter().flat_map(Attrs::iter))
            .find(is_it);
        let mut in_inode: Vec<_> = inode.iter().filter(|a| !is_it(a)).collect();
        let mut in_block: Vec<_> = block
            .iter()
            .flat_map(Attrs::iter)
            .filter(|a| !is_it(a))
            .collect();
        let was_in_inode = inode.iter().any(|a| is_it(&a));
        let was_in_block = old.is_some() && !was_in_inode;

        let new = value.map(|v| Attr {
            index,
            name,
            value: v,
        });
        let mut area = vec![0; self.area.len()];
        let fits_inode = match new {
            Some(attr) => {
                in_inode.push(attr);
                let fits = !area.is_empty() && xattr::write_in_inode(&mut area, &in_inode)?;
                if !fits {
                    in_inode.pop();
                }
                fits
            }
            None => false,
        };
        let mut layout = Layout::default();
        let left = old.as_ref().and_then(ValueRef::of);
        if was_in_inode {
            layout.left_inode.extend(left);
        } else {
            layout.left_block.extend(left);
        }
        if fits_inode {
            layout.area = Some(area);
        } else if was_in_inode {
            xattr::write_in_inode(&mut area, &in_inode)?;
            layout.area = Some(area);
        }
        let to_block = new.filter(|_| !fits_inode);
        if was_in_block || to_block.is_some() {
            if self.is_shared() {
                layout.copied = ValueRef::all(&in_block);
            }
            in_block.extend(to_block);
            let values = xattr::values_space(&in_block);
            let by_itself = matches!(
                to_block,
                Some(Attr {
                    value: Value::Bytes(_),
                    ..
                })
            );
            if by_itself && values > block_size.saturating_sub(reserve) {
                return Err(FsError::Errno(libc::ENOSPC));
            }
            let mut bytes = vec![0; block_size];
            layout.block = match () {
                () if in_block.is_empty() => BlockChange::Drop,
                () if xattr::write_block(&mut bytes, &in_block, 1)? => BlockChange::Write(bytes),
                () => return Err(FsError::Errno(libc::ENOSPC)),
            };
        }
        Ok(layout)
    }
}

impl Fs {
    /// Promises the owner's quota what [`xattr_apply`](Self::xattr_apply) takes.
    ///
    /// # Errors
    /// EDQUOT.
    pub(crate) fn promise_attributes(
        &self,
        ctx: &Ctx,
        body: &mut InodeBody,
        layout: &Layout,
    ) -> Result<Promise<'_>> {
        let block = match body.file_acl() {
            0 => layout.blocks() * u64::from(self.vol.geo.ratio()),
            _ => 0,
        };
        let new: i64 = layout
            .added
            .iter()
            .map(|v| self.inodes.value_charge(v.size()))
            .sum();
        let blocks = block + u64::try_from(new).unwrap_or(0);
        let promise = self.promise(ctx, body.owner(), blocks, layout.values())?;
        promise.give(body);
        Ok(promise)
    }
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

    /// Carries out a change of attributes. The caller writes the inode.
    /// [`Layout::credits`], and [`Layout::blocks`] reserved.
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

    /// Gives the inode an attribute block with this content: its own one rewritten, or a new one
    /// when it has none or shares it, which is what it says then.
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

    /// Takes one reference from a shared block, and says `true`. A block that is not shared gets
    /// the content, if there is one. Whether it is shared is decided with the block locked:
    /// other inodes may be leaving it at the same time.
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

    /// Takes all attributes away from an inode that is being deleted, in as many transactions as it
    /// takes, and writes the inode.
    pub(crate) fn xattr_drop(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        loop {
            // One reference after the other: they may be many.
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
            // The last of those who shared the block may have left it meanwhile.
            if self.has_values() {
                let stored = self.xattr_load(inode, body)?;
                if stored.first_value()?.is_some() {
                    continue;
                }
                // What is left belongs to those who share the block.
                let values = ValueRef::all(&stored.all()?);
                body.add_blocks(-self.values_charge(&values))?;
                body.tally.values -= i64::from(count32(values.len()));
            }
            self.xattr_leave(h, body)?;
            return self.store_inode(h, inode, body);
        }
    }

    /// Lets go of the inode's attribute block, in which there are no references to values, or which
    /// others share: it is freed, or one inode fewer shares it, which is what it says then. The
    /// caller writes the inode.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn apply(stored: &mut Stored, layout: Layout) {
        if let Some(area) = layout.area {
            stored.area = area;
        }
        match layout.block {
            BlockChange::Keep => {}
            BlockChange::Drop => stored.block = None,
            BlockChange::Write(bytes) => {
                stored.block = Some(Arc::new(stetfs_cache::Page::copy_of(&bytes)))
            }
        }
    }

    proptest! {
        #[test]
        fn attributes_behave_like_a_map(
            room in prop_oneof![Just(0usize), Just(96), Just(352)],
            ops in prop::collection::vec((0u8..12, prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..500))), 0..60),
        ) {
            let mut stored = Stored { area: vec![0; room], block: None };
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for (which, value) in ops {
                let name = vec![b'a' + which; usize::from(which) + 1];
                match stored.with(1024, 1, &name, value.as_deref()) {
                    Ok(layout) => {
                        apply(&mut stored, layout);
                        match value {
                            Some(v) => drop(model.insert(name, v)),
                            None => drop(model.remove(&name)),
                        }
                    }
                    Err(FsError::Errno(libc::ENOSPC)) => {
                        // Only what fits neither place is refused.
                        let need = value.unwrap().len() + name.len() + 16;
                        let used: usize = model.iter().map(|(k, v)| k.len() + v.len() + 24).sum();
                        prop_assert!(need + used + 36 > 1024 - 36);
                    }
                    Err(e) => return Err(TestCaseError::fail(e.to_string())),
                }
                let all: BTreeMap<Vec<u8>, Vec<u8>> = stored.all().unwrap().into_iter().map(|a| match a.value {
                    Value::Bytes(v) => (a.name.to_vec(), v.to_vec()),
                    Value::Inode { .. } => unreachable!(),
                }).collect();
                prop_assert_eq!(&all, &model);
                prop_assert_eq!(stored.all().unwrap().len(), model.len());
            }
        }
    }
}
