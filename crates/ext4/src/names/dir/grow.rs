//! Growth of an index: making one, splitting leaves and index blocks, adding a level.

use std::sync::Arc;

use stetfs_journal::{Block, Handle, Ino};
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::{self, IndexEntry, NodeKind};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::index::in_index;
use super::path::{Frame, Path};
use super::{Format, NewBlocks, NewEntry, WHAT, bytes, in_block};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;
use crate::verified;

/// An entry with a copy of its name, on the way to another block.
#[derive(Clone, Debug)]
struct Record {
    ino: Ino,
    kind: FileType,
    name: Vec<u8>,
}

/// Entries by hash, to be distributed over two leaves.
type Hashed = Vec<(u32, Record)>;

/// The position for a split: the part from there on has about half of the bytes.
fn cut(records: &Hashed) -> usize {
    let total: usize = records
        .iter()
        .map(|(_, r)| dirent::min_rec_len(r.name.len()))
        .sum();
    let mut sum = 0;
    for (i, (_, record)) in records.iter().enumerate() {
        let len = dirent::min_rec_len(record.name.len());
        if i > 0 && sum + len / 2 >= total / 2 {
            return i;
        }
        sum += len;
    }
    records.len().saturating_sub(1)
}

fn borrowed(records: &[(u32, Record)]) -> impl Iterator<Item = (Ino, FileType, &[u8])> {
    records
        .iter()
        .map(|(_, r)| (r.ino, r.kind, r.name.as_slice()))
}

impl Namespace {
    /// The entries of a block from byte `offset` on, and a new one, sorted by hash.
    fn dir_sorted(
        &self,
        block: &Block,
        format: Format,
        offset: usize,
        version: HashVersion,
        new: NewEntry<'_>,
    ) -> Result<Hashed> {
        let view = bytes(block)?;
        let new = Record {
            ino: new.ino,
            kind: new.kind,
            name: new.name.to_vec(),
        };
        let mut records = vec![(self.dir_hash(version, &new.name), new)];
        for entry in in_block(block, dirent::entries(&view, &format.layout))? {
            let e = in_block(block, entry)?;
            if e.inode != 0 && e.offset >= offset {
                let record = Record {
                    ino: e.inode,
                    kind: e.file_type,
                    name: e.name.to_vec(),
                };
                records.push((self.dir_hash(version, e.name), record));
            }
        }
        records.sort_by_key(|(hash, _)| *hash);
        Ok(records)
    }

    /// Distributes a sorted list over two leaves. Returns the hash at which the upper one begins,
    /// with the collision bit if names with that hash are also in the lower one.
    fn dir_spread(
        &self,
        h: &Handle<'_>,
        format: Format,
        records: &Hashed,
        lower: &Arc<Block>,
        upper: &Arc<Block>,
    ) -> Result<u32> {
        let at = cut(records);
        let (low, high) = records.split_at(at);
        let begins = high.first().map_or(0, |(hash, _)| *hash);
        let continued = low.last().is_some_and(|(hash, _)| *hash == begins);
        for (block, half) in [(lower, low), (upper, high)] {
            let mut fitted = 0;
            self.dir_change(h, format, block, |b| {
                fitted = dirent::fill(b, &format.layout, borrowed(half))?;
                Ok(())
            })?;
            if fitted != half.len() {
                return Err(FsError::corrupt(
                    WHAT,
                    block.nr(),
                    "half of its entries do not fit into one block",
                ));
            }
        }
        lower.set_verified(verified::DIR_LEAF);
        upper.set_verified(verified::DIR_LEAF);
        Ok(begins | u32::from(continued))
    }

    /// Changes an index block and its checksum.
    fn index_change<T>(
        &self,
        h: &Handle<'_>,
        format: Format,
        (block, kind): (&Arc<Block>, NodeKind),
        change: impl FnOnce(&mut [u8]) -> stetfs_ondisk::Result<T>,
    ) -> Result<T> {
        let mut guard = h.modify(block)?;
        let mut done = change(&mut guard);
        if let (Ok(_), Some(seed)) = (&done, format.seed)
            && let Err(e) = htree::update_checksum(&mut guard, kind, &format.index, seed)
        {
            done = Err(e);
        }
        drop(guard);
        self.vol.noted(in_index(block, done))
    }

    /// Checks, as part of a plan, that the only block of a directory can become an index root: `.`
    /// and `..` must be at their places in a root.
    pub(super) fn index_check_make(&self, inode: &Inode, body: &InodeBody) -> Result<()> {
        let format = self.dir_format(inode, body);
        let block = self.dir_leaf(inode, body, format, 0)?;
        self.dir_dots(&block, format).map(drop)
    }

    /// The inode of `..`, and the offset of the entry after it.
    pub(super) fn dir_dots(&self, block: &Block, format: Format) -> Result<(Ino, usize)> {
        let view = bytes(block)?;
        // In an index root `..` extends to the end of the block, over the place of the checksum.
        let layout = DirLayout {
            tail: false,
            ..format.layout
        };
        let mut entries = in_block(block, dirent::entries(&view, &layout))?;
        match (entries.next(), entries.next()) {
            (Some(Ok(dot)), Some(Ok(dotdot)))
                if dot.name == b"."
                    && dotdot.name == b".."
                    && dotdot.offset == dirent::min_rec_len(1) =>
            {
                Ok((dotdot.inode, dotdot.offset + dotdot.rec_len))
            }
            _ => self.vol.noted(Err(FsError::corrupt(
                WHAT,
                block.nr(),
                "the directory does not begin with . and ..",
            ))),
        }
    }

    /// Makes the only block, which is full, an index root. Its entries and the new one go to two
    /// leaves.
    pub(super) fn index_make(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        mut blocks: NewBlocks,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let format = self.dir_format(inode, body);
        let root = self.dir_leaf(inode, body, format, 0)?;
        let (parent, rest) = self.dir_dots(&root, format)?;
        let version = self.vol.geo.hash;
        let records = self.dir_sorted(&root, format, rest, version, new)?;
        let (first, lower) = blocks.take()?;
        let (second, upper) = blocks.take()?;
        let begins = self.dir_spread(h, format, &records, &lower, &upper)?;
        let version_byte = version.root_byte();
        self.index_change(h, format, (&root, NodeKind::Root), |b| {
            htree::init_root(
                b,
                &format.index,
                (inode.ino, parent),
                format.layout.filetype,
                version_byte,
                first,
            )?;
            htree::insert(
                b,
                NodeKind::Root,
                &format.index,
                0,
                IndexEntry {
                    hash: begins,
                    block: second,
                },
            )
        })?;
        root.set_verified(verified::DIR_ROOT);
        let flags = body.flags() | InodeFlags::INDEX;
        body.set_flags(flags);
        Ok(())
    }

    /// Splits a full leaf, and adds the new entry to the proper half.
    pub(super) fn index_split(
        &self,
        h: &Handle<'_>,
        format: Format,
        path: &Path,
        lower: &Arc<Block>,
        mut blocks: NewBlocks,
        new: NewEntry<'_>,
    ) -> Result<()> {
        let records = self.dir_sorted(lower, format, 0, path.version, new)?;
        let (lblk, upper) = blocks.take()?;
        let begins = self.dir_spread(h, format, &records, lower, &upper)?;
        let entry = IndexEntry {
            hash: begins,
            block: lblk,
        };
        self.index_add(h, format, &path.frames, &mut blocks, entry)
    }

    /// Adds an entry behind the followed entry of the last frame, after making room for it.
    fn index_add(
        &self,
        h: &Handle<'_>,
        format: Format,
        frames: &[Frame],
        blocks: &mut NewBlocks,
        entry: IndexEntry,
    ) -> Result<()> {
        let layout = format.index;
        let Some((
            Frame {
                block, kind, at, ..
            },
            above,
        )) = frames.split_last()
        else {
            return Err(FsError::corrupt(
                WHAT,
                0,
                "an inner index node has no parent",
            ));
        };
        let (kind, at) = (*kind, *at);
        let here = (block, kind);
        if self.index_change(h, format, here, |b| {
            htree::insert(b, kind, &layout, at, entry)
        })? {
            return Ok(());
        }
        // Both halves are built outside the blocks, so that no two blocks are locked at once.
        let mut old = bytes(block)?.to_vec();
        let mut new = vec![0; old.len()];
        let (lblk, fresh) = blocks.take()?;
        let inserted = if kind == NodeKind::Root {
            in_index(block, htree::deepen(&mut old, &mut new, &layout, lblk))?;
            in_index(
                &fresh,
                htree::insert(&mut new, NodeKind::Node, &layout, at, entry),
            )?
        } else {
            let begins = in_index(block, htree::split_node(&mut old, &mut new, &layout))?;
            let keep = in_index(block, htree::Index::new(&old, kind, &layout))?.len();
            let pair = IndexEntry {
                hash: begins,
                block: lblk,
            };
            self.index_add(h, format, above, blocks, pair)?;
            let (half, at) = match at.checked_sub(keep) {
                None => (&mut old, at),
                Some(at) => (&mut new, at),
            };
            in_index(block, htree::insert(half, kind, &layout, at, entry))?
        };
        if !inserted {
            return Err(FsError::corrupt(
                WHAT,
                block.nr(),
                "a split index block has no room",
            ));
        }
        for (to, from) in [((&fresh, NodeKind::Node), &new), (here, &old)] {
            self.index_change(h, format, to, |b| {
                b.copy_from_slice(from);
                Ok(())
            })?;
        }
        fresh.set_verified(verified::DIR_NODE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_halves_fit(lens in prop::collection::vec(1usize..=255, 1..90), new in 1usize..=255) {
            // As many names as one 1 KiB block holds, and one more.
            let mut sum = 0;
            let mut names: Vec<usize> = lens.into_iter().take_while(|l| { sum += dirent::min_rec_len(*l); sum <= 1012 }).collect();
            names.push(new);
            if names.len() < 2 { return Ok(()) }
            let records: Hashed = names.iter().enumerate()
                .map(|(i, l)| (i as u32, Record { ino: 1, kind: FileType::Regular, name: vec![b'x'; *l] }))
                .collect();
            let at = cut(&records);
            let size = |r: &[(u32, Record)]| r.iter().map(|(_, r)| dirent::min_rec_len(r.name.len())).sum::<usize>();
            prop_assert!(at > 0 && at < records.len());
            prop_assert!(size(&records[..at]) <= 1012 && size(&records[at..]) <= 1012);
        }
    }
}
