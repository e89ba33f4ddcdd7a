//! Lookup through a directory's index.

use std::collections::HashSet;
use std::sync::Arc;

use stetfs_journal::Block;
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::{self, Index, NodeKind};

use super::path::{Frame, Path, no_frame};
use super::{Format, Found, Place, Plan, bytes};
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;
use crate::verified;
use stetfs_ondisk::num::count32;

/// The name of an index block in errors.
const INDEX: &str = "directory index";

/// Turns a contradiction in an index block into an error that names the block.
pub(super) fn in_index<T>(block: &Block, result: stetfs_ondisk::Result<T>) -> Result<T> {
    result.map_err(|e| FsError::corrupt(INDEX, block.nr(), e.to_string()))
}

/// Leaves that one operation reads. It detects a damaged index that leads to the same leaves again
/// and again.
#[derive(Default)]
pub(super) struct Leaves {
    /// The first leaf. Most operations read only one.
    first: Option<u32>,
    more: HashSet<u32>,
}

impl Leaves {
    /// Adds a leaf, by its block in the directory.
    pub(super) fn add(&mut self, inode: &Inode, leaf: u32) -> Result<()> {
        let new = match self.first {
            None => {
                self.first = Some(leaf);
                true
            }
            Some(first) => first != leaf && self.more.insert(leaf),
        };
        if new {
            return Ok(());
        }
        let detail = format!(
            "the index of directory {} leads to its block {leaf} more than once",
            inode.ino
        );
        Err(FsError::corrupt(INDEX, 0, detail))
    }
}

impl Namespace {
    /// The directory hash of a name with this version.
    pub(super) fn dir_hash(&self, version: HashVersion, name: &[u8]) -> u32 {
        version.hash(name, self.vol.geo.hash_seed).major
    }

    /// An index block, checked.
    pub(super) fn index_block(
        &self,
        inode: &Inode,
        body: &InodeBody,
        format: Format,
        lblk: u32,
        kind: NodeKind,
    ) -> Result<Arc<Block>> {
        let code = if kind == NodeKind::Root {
            verified::DIR_ROOT
        } else {
            verified::DIR_NODE
        };
        let block = self.data.dir_block(inode, body, lblk)?;
        if block.verified() != code {
            let view = bytes(&block)?;
            let mut checked = Index::new(&view, kind, &format.index)
                .and_then(|index| index.check(self.dir_blocks(body)));
            if let (Ok(()), Some(seed)) = (&checked, format.seed) {
                checked = htree::verify_checksum(&view, kind, &format.index, seed);
            }
            self.vol.noted(in_index(&block, checked))?;
            drop(view);
            block.set_verified(code);
        }
        Ok(block)
    }

    /// The path to the leaf where names with a certain hash begin, and that hash, which `hash_of`
    /// computes from the hash version.
    pub(super) fn index_probe(
        &self,
        inode: &Inode,
        body: &InodeBody,
        hash_of: impl FnOnce(HashVersion) -> u32,
    ) -> Result<(Path, u32)> {
        let format = self.dir_format(inode, body);
        let root = self.index_block(inode, body, format, 0, NodeKind::Root)?;
        let info = htree::root_info(&bytes(&root)?, &format.index);
        let info = self.vol.noted(in_index(&root, info))?;
        let version = in_index(
            &root,
            HashVersion::of_root(info.hash_version, self.vol.geo.hash.unsigned),
        )?;
        let hash = hash_of(version);
        let levels = usize::from(info.indirect_levels) + 1;
        let mut path = Path {
            frames: Vec::with_capacity(levels),
            version,
        };
        let (mut block, mut kind) = (root, NodeKind::Root);
        loop {
            let at = in_index(&block, Index::new(&bytes(&block)?, kind, &format.index))?
                .search(hash)
                .0;
            self.index_push(inode, body, format, &mut path, (block, kind), at)?;
            if path.frames.len() == levels {
                return Ok((path, hash));
            }
            kind = NodeKind::Node;
            block = self.index_block(inode, body, format, path.leaf()?, kind)?;
        }
    }

    /// Follows entry `at` of an index block.
    fn index_push(
        &self,
        inode: &Inode,
        body: &InodeBody,
        format: Format,
        path: &mut Path,
        (block, kind): (Arc<Block>, NodeKind),
        at: usize,
    ) -> Result<()> {
        let frame = {
            let view = bytes(&block)?;
            let index = in_index(&block, Index::new(&view, kind, &format.index))?;
            let (child, hash) = index.get(at).map_or((0, 0), |e| (e.block, e.hash));
            let again = path.frames.iter().any(|f| f.child == child);
            if child == 0 || child >= self.dir_blocks(body) || again {
                let detail = format!(
                    "entry {at} leads directory {} to its block {child}",
                    inode.ino
                );
                return self
                    .vol
                    .noted(Err(FsError::corrupt(INDEX, block.nr(), detail)));
            }
            let (full, last) = (index.is_full(), at + 1 == index.len());
            Frame {
                block: Arc::clone(&block),
                kind,
                at,
                full,
                last,
                child,
                hash,
            }
        };
        path.frames.push(frame);
        Ok(())
    }

    /// Moves to the next leaf. Returns the hash at which it begins, with the collision bit; `None`
    /// at the end.
    pub(super) fn index_next(
        &self,
        inode: &Inode,
        body: &InodeBody,
        path: &mut Path,
    ) -> Result<Option<u32>> {
        let format = self.dir_format(inode, body);
        let depth = path.frames.len();
        let Some(turn) = path.frames.iter().rposition(|f| !f.last) else {
            return Ok(None);
        };
        let frame = path.frames.drain(turn..).next();
        let Frame {
            block, kind, at, ..
        } = frame.ok_or_else(no_frame)?;
        let entry = in_index(&block, Index::new(&bytes(&block)?, kind, &format.index))?.get(at + 1);
        self.index_push(inode, body, format, path, (block, kind), at + 1)?;
        while path.frames.len() < depth {
            let block = self.index_block(inode, body, format, path.leaf()?, NodeKind::Node)?;
            self.index_push(inode, body, format, path, (block, NodeKind::Node), 0)?;
        }
        Ok(entry.map(|e| e.hash))
    }

    pub(super) fn index_find(
        &self,
        inode: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let (path, hash) = self.index_probe(inode, body, |v| self.dir_hash(v, name))?;
        self.index_search(inode, body, path, hash, name)
    }

    /// Searches for `name` from the leaf of `path` on, while names with its hash may follow.
    fn index_search(
        &self,
        inode: &Inode,
        body: &InodeBody,
        mut path: Path,
        hash: u32,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let format = self.dir_format(inode, body);
        let mut leaves = Leaves::default();
        loop {
            self.vol.noted(leaves.add(inode, path.leaf()?))?;
            let block = self.dir_leaf(inode, body, format, path.leaf()?)?;
            if let Some(found) = self.find_in(format, &block, name)? {
                return Ok(Some(found));
            }
            match self.index_next(inode, body, &mut path)? {
                Some(next) if next == hash | 1 => {}
                _ => return Ok(None),
            }
        }
    }

    pub(super) fn index_plan(&self, inode: &Inode, body: &InodeBody, name: &[u8]) -> Result<Plan> {
        let format = self.dir_format(inode, body);
        let (path, hash) = self.index_probe(inode, body, |v| self.dir_hash(v, name))?;
        if self
            .index_search(inode, body, path.clone(), hash, name)?
            .is_some()
        {
            return Err(FsError::Errno(libc::EEXIST));
        }
        let leaf = self.dir_leaf(inode, body, format, path.leaf()?)?;
        if self.has_room(format, &leaf, name)? {
            return Ok(Plan {
                place: Place::Room(leaf),
                new_blocks: 0,
                changed_blocks: 1,
            });
        }
        // One new leaf, and a new node for each full index block, from the bottom up: a full node
        // is split, a full root moves its entries to a new node.
        let full = path.frames.iter().rev().take_while(|f| f.full).count();
        if full == path.frames.len() && full > usize::from(format.index.max_levels) {
            return Err(FsError::Errno(libc::ENOSPC));
        }
        let new_blocks = 1 + count32(full);
        self.dir_check_growth(body, new_blocks)?;
        let changed_blocks = 1 + count32(path.frames.len());
        Ok(Plan {
            place: Place::Split { path, leaf },
            new_blocks,
            changed_blocks,
        })
    }
}
