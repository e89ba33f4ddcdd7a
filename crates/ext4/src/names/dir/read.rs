//! Reading a directory piece by piece; checks for emptiness; the parent.

use std::sync::Arc;

use stetfs_journal::{Handle, Ino};
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType as EntryType};
use stetfs_ondisk::ext4::features::Compat;
use stetfs_ondisk::ext4::hash::HashVersion;
use stetfs_ondisk::ext4::htree::{self, NodeKind};
use stetfs_ondisk::ext4::inode::InodeFlags;

use super::hash_order::{self, Cookie, Place};
use super::index::Leaves;
use super::{Format, bytes, has_index, in_block};
use crate::data::Mapping;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;
use crate::types::{DirEntry, FileType};

/// Blocks that are read ahead at once.
const READ_AHEAD: u32 = 64;

/// Entries in reading order, and the cookie behind them (`None` at the end of the directory).
pub(crate) struct Piece {
    pub(crate) entries: Vec<DirEntry>,
    pub(crate) next: Option<u64>,
}

impl Namespace {
    /// The entries from `cookie` on that one block (and its collisions) holds.
    pub(crate) fn dir_read(&self, inode: &Inode, body: &InodeBody, cookie: u64) -> Result<Piece> {
        body.check_key()?;
        self.dir_has_blocks_once(inode, body)?;
        let hashed = body.is_inline()
            || self.dir_is_indexed(body)
            || (self.linear_blocks(inode, body)? == 1
                && self.vol.geo.compat.contains(Compat::DIR_INDEX)
                && !body.flags().contains(InodeFlags::CASEFOLD));
        if !hashed {
            return self.read_by_offset(inode, body, cookie);
        }
        match Cookie::decode(cookie) {
            Cookie::Dot => Ok(self.dot(inode.ino, b".", Cookie::DotDot)),
            Cookie::DotDot => {
                // The leaves are about to be read in hash order.
                self.dir_read_ahead(inode, body, 0);
                let parent = self.dir_parent(inode, body)?;
                Ok(self.dot(parent, b"..", Cookie::From(Place::of_hash(0))))
            }
            Cookie::From(place) => self.read_by_hash(inode, body, place),
        }
    }

    /// Reads blocks from `lblk` on into the cache, as far as they are consecutive on the volume. A
    /// failure is ignored here: the next reader of the block gets it.
    fn dir_read_ahead(&self, inode: &Inode, body: &InodeBody, lblk: u32) {
        if body.is_inline() {
            return;
        }
        let want = self.dir_blocks(body).saturating_sub(lblk).min(READ_AHEAD);
        if want < 2 {
            return;
        }
        let ahead = self
            .data
            .map(inode, body, lblk, want)
            .and_then(|mapping| match mapping {
                Mapping::Mapped { start, len, .. } => {
                    Ok(self.vol.cache.prefetch(start, u64::from(len))?)
                }
                Mapping::Hole { .. } => Ok(()),
            });
        if let Err(e) = ahead {
            tracing::debug!(ino = inode.ino, "directory not read ahead: {e}");
        }
    }

    fn dot(&self, ino: Ino, name: &[u8], next: Cookie) -> Piece {
        let next = next.encode();
        let entry = DirEntry {
            ino,
            kind: entry_kind(EntryType::Directory),
            name: name.to_vec(),
            next,
        };
        Piece {
            entries: vec![entry],
            next: Some(next),
        }
    }

    fn read_by_hash(&self, inode: &Inode, body: &InodeBody, from: Place) -> Result<Piece> {
        let format = self.dir_format(inode, body);
        let mut found = Vec::new();
        let next = if body.is_inline() {
            let version = self.vol.geo.hash;
            for (ino, kind, name) in self.inline_look(inode, body)?.entries {
                found.push((self.dir_hash(version, &name), name, (ino, kind)));
            }
            None
        } else if has_index(body) {
            let (mut path, _) = self.index_probe(inode, body, |_| from.hash())?;
            let first = path.begins();
            let mut leaves = Leaves::default();
            let next = loop {
                self.vol.noted(leaves.add(inode, path.leaf()?))?;
                self.collect(inode, body, format, path.leaf()?, path.version, &mut found)?;
                match self.index_next(inode, body, &mut path)? {
                    // Names with the same hash are ordered together.
                    Some(hash) if hash & 1 == 1 => {}
                    next => break next,
                }
            };
            // A name in the wrong leaf cannot be looked up, and a reader that continues from a
            // place would skip it.
            let range = first..next.unwrap_or(u32::MAX);
            if let Some((_, name, _)) = found.iter().find(|(hash, ..)| !range.contains(hash)) {
                let detail = format!(
                    "directory {}: {:?} is in the wrong index leaf",
                    inode.ino,
                    String::from_utf8_lossy(name)
                );
                return self
                    .vol
                    .noted(Err(FsError::corrupt(super::WHAT, 0, detail)));
            }
            next.map(Place::of_hash)
        } else {
            self.collect(inode, body, format, 0, self.vol.geo.hash, &mut found)?;
            None
        };
        let entries = hash_order::order(found)
            .into_iter()
            .filter(|placed| placed.place >= from)
            .map(|placed| {
                let (name, (ino, kind)) = placed.entry;
                DirEntry {
                    ino,
                    kind: entry_kind(kind),
                    name,
                    next: Cookie::From(placed.next).encode(),
                }
            })
            .collect();
        Ok(Piece {
            entries,
            next: next.map(|place| Cookie::From(place).encode()),
        })
    }

    /// Adds the entries of a leaf, without `.` and `..`.
    fn collect(
        &self,
        inode: &Inode,
        body: &InodeBody,
        format: Format,
        lblk: u32,
        version: HashVersion,
        found: &mut Vec<(u32, Vec<u8>, (Ino, EntryType))>,
    ) -> Result<()> {
        let block = self.dir_leaf(inode, body, format, lblk)?;
        let view = bytes(&block)?;
        for entry in in_block(&block, dirent::entries(&view, &format.layout))? {
            let e = in_block(&block, entry)?;
            if e.inode != 0 && !e.is_dots() {
                found.push((
                    self.dir_hash(version, e.name),
                    e.name.to_vec(),
                    (e.inode, e.file_type),
                ));
            }
        }
        Ok(())
    }

    /// Reads a directory without a hash order: the cookie is the byte offset of the next entry.
    /// Entries never move in such a directory.
    fn read_by_offset(&self, inode: &Inode, body: &InodeBody, cookie: u64) -> Result<Piece> {
        let format = self.dir_format(inode, body);
        let bits = self.vol.geo.block_bits;
        let Ok(lblk) = u32::try_from(cookie >> bits) else {
            return Ok(Piece {
                entries: Vec::new(),
                next: None,
            });
        };
        if lblk >= self.linear_blocks(inode, body)? {
            return Ok(Piece {
                entries: Vec::new(),
                next: None,
            });
        }
        let start = u64::from(lblk) << bits;
        if lblk.is_multiple_of(READ_AHEAD) {
            self.dir_read_ahead(inode, body, lblk);
        }
        let block = self.dir_leaf(inode, body, format, lblk)?;
        let mut entries = Vec::new();
        let view = bytes(&block)?;
        for entry in in_block(&block, dirent::entries(&view, &format.layout))? {
            let e = in_block(&block, entry)?;
            let end = e.offset + e.rec_len;
            if e.inode != 0 && start + e.offset as u64 >= cookie {
                let end = if end == format.layout.space(format.block_size) {
                    format.block_size
                } else {
                    end
                };
                let next = start + end as u64;
                entries.push(DirEntry {
                    ino: e.inode,
                    kind: entry_kind(e.file_type),
                    name: e.name.to_vec(),
                    next,
                });
            }
        }
        Ok(Piece {
            entries,
            next: Some(start + (1 << bits)),
        })
    }

    /// Whether only `.` and `..` are left. Every block is read, also those that an index omits.
    pub(crate) fn dir_is_empty(&self, inode: &Inode, body: &InodeBody) -> Result<bool> {
        if body.is_inline() {
            return Ok(self.inline_look(inode, body)?.entries.is_empty());
        }
        self.dir_has_blocks_once(inode, body)?;
        let format = self.dir_format(inode, body);
        let indexed = self.dir_is_indexed(body);
        for lblk in 0..self.linear_blocks(inode, body)? {
            let block = self.data.dir_block(inode, body, lblk)?;
            let node = indexed && htree::looks_like_node(&bytes(&block)?, &format.index);
            if indexed && (lblk == 0 || node) {
                let kind = if node { NodeKind::Node } else { NodeKind::Root };
                self.index_block(inode, body, format, lblk, kind)?;
                continue;
            }
            let block = self.dir_leaf(inode, body, format, lblk)?;
            let view = bytes(&block)?;
            for entry in in_block(&block, dirent::entries(&view, &format.layout))? {
                let e = in_block(&block, entry)?;
                if e.inode != 0 && !e.is_dots() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The first block, which contains `..` with or without an index.
    fn dir_first(
        &self,
        inode: &Inode,
        body: &InodeBody,
        format: Format,
    ) -> Result<Arc<stetfs_journal::Block>> {
        if self.dir_is_indexed(body) {
            self.index_block(inode, body, format, 0, NodeKind::Root)
        } else {
            self.dir_leaf(inode, body, format, 0)
        }
    }

    /// The inode that `..` names.
    pub(crate) fn dir_parent(&self, inode: &Inode, body: &InodeBody) -> Result<Ino> {
        if body.is_inline() {
            return Ok(self.inline_look(inode, body)?.parent);
        }
        let format = self.dir_format(inode, body);
        let block = self.dir_first(inode, body, format)?;
        let (parent, _) = self.dir_dots(&block, format)?;
        if parent == 0 {
            return Err(FsError::corrupt(
                super::WHAT,
                block.nr(),
                "the entry .. names no inode",
            ));
        }
        Ok(parent)
    }

    /// Makes `..` name another inode. The caller writes the directory's inode.
    pub(crate) fn dir_set_parent(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        parent: Ino,
    ) -> Result<()> {
        if body.is_inline() {
            if let Some(to) = body.i_block_mut().first_chunk_mut() {
                *to = parent.to_le_bytes();
            }
            return Ok(());
        }
        let format = self.dir_format(inode, body);
        let block = self.dir_first(inode, body, format)?;
        self.dir_dots(&block, format)?;
        let indexed = self.dir_is_indexed(body);
        let mut guard = h.modify(&block)?;
        // In an index root `..` extends to the end of the block.
        let layout = DirLayout {
            tail: format.layout.tail && !indexed,
            ..format.layout
        };
        let mut done = dirent::set_inode(
            &mut guard,
            &layout,
            dirent::min_rec_len(1),
            parent,
            EntryType::Directory,
        );
        if let (Ok(()), Some(seed)) = (&done, format.seed) {
            done = if indexed {
                htree::update_checksum(&mut guard, NodeKind::Root, &format.index, seed)
            } else {
                dirent::update_checksum(&mut guard, seed)
            };
        }
        drop(guard);
        self.vol.noted(in_block(&block, done))
    }
}

/// The type in an entry; `None` if the entry has none.
fn entry_kind(kind: EntryType) -> Option<FileType> {
    Some(match kind {
        EntryType::Unknown => return None,
        EntryType::Regular => FileType::Regular,
        EntryType::Directory => FileType::Directory,
        EntryType::CharDevice => FileType::CharDevice,
        EntryType::BlockDevice => FileType::BlockDevice,
        EntryType::Fifo => FileType::Fifo,
        EntryType::Socket => FileType::Socket,
        EntryType::Symlink => FileType::Symlink,
    })
}
