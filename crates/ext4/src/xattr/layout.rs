//! Layouts: the places of an inode's attributes, before and after a change.

use stetfs_cache::PageRef;
use stetfs_journal::Credits;
use stetfs_ondisk::ext4::xattr::{self, Attr, Attrs, BlockHeader, Value};
use stetfs_ondisk::num::count32;

use super::value::{NewValue, REFERENCE, ValueRef};
use crate::error::{FsError, Result};
use crate::space::credits::{ALLOC_BLOCKS, FREE_BLOCKS};

/// Credits for the places of a [`Layout`], without the inode: the old block and a new one.
const PLACES: Credits = 2 + ALLOC_BLOCKS + FREE_BLOCKS;
/// A copy of the attributes of an inode.
pub(crate) struct Stored {
    /// The area behind the inode's fields; empty when there is no room for attributes.
    pub(super) area: Vec<u8>,
    pub(super) block: Option<PageRef>,
}

/// A new layout of both places, the inode and the block.
#[derive(Default)]
pub(crate) struct Layout {
    pub(super) area: Option<Vec<u8>>,
    pub(super) block: BlockChange,
    /// New values in inodes of their own.
    pub(crate) added: Vec<NewValue>,
    /// Values that an entry in the inode referred to, and no longer does.
    pub(super) left_inode: Vec<ValueRef>,
    /// Values that an entry in the block referred to, and no longer does. If other inodes share the
    /// old block, its entries still refer to them.
    pub(super) left_block: Vec<ValueRef>,
    /// Values that entries of both the new and the old block refer to, if the old block was shared.
    pub(super) copied: Vec<ValueRef>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum BlockChange {
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

    /// Credits to apply it, without the inode.
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

impl Layout {
    /// The layout of exactly these attributes, for an inode with `room` bytes behind its fields: in
    /// the inode as far as they fit, the rest in a block.
    ///
    /// # Errors
    /// ENOSPC if they do not fit.
    pub(crate) fn of(room: usize, block_size: usize, attrs: &[Attr<'_>]) -> Result<Layout> {
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
    pub(super) fn lists(&self) -> Result<(Attrs<'_>, Option<Attrs<'_>>)> {
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

    /// Index and name of an attribute whose value has an inode of its own. Attributes in a shared
    /// block do not count.
    pub(super) fn first_value(&self) -> Result<Option<(u8, Vec<u8>)>> {
        let (inode, block) = self.lists()?;
        let block = block.filter(|_| !self.is_shared());
        let mut all = inode.iter().chain(block.iter().flat_map(Attrs::iter));
        let found = all.find(|a| ValueRef::of(a).is_some());
        Ok(found.map(|a| (a.index, a.name.to_vec())))
    }

    /// Whether other inodes share the block. They may leave it at any time; none can join.
    pub(super) fn is_shared(&self) -> bool {
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

    /// The layout after `name` is set to `value` (or removed): in the inode if it fits there, else
    /// in the block. All other attributes stay in their place.
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

    /// [`with`](Self::with) for a value that may have an inode of its own. A value without one goes
    /// to the block only if the block's first `reserve` bytes stay free of values.
    pub(crate) fn with_value(
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

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
                        // Only an attribute that fits neither place is refused.
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
