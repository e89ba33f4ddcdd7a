//! Inline directories: `i_block` holds the parent's number and then entries, and the attribute
//! `system.data` further entries. `.` and `..` are not stored.
//!
//! Inline directories are read here. Before entries change, the directory gets a block
//! (`move_out`).

use stetfs_journal::{Handle, Ino};
use stetfs_ondisk::ext4::dirent::{self, DirLayout, FileType};

use super::{Found, WHAT};
use crate::data::Inline;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;

/// Size of the parent's number, bytes.
const PARENT: usize = 4;

/// An entry that owns its name: inode, type, name.
pub(super) type Owned = (Ino, FileType, Vec<u8>);

/// The content of an inline directory.
pub(crate) struct InlineEntries {
    pub(super) parent: Ino,
    pub(super) entries: Vec<Owned>,
}

impl Namespace {
    /// The content of the directory.
    ///
    /// # Errors
    /// EUCLEAN.
    fn inline_entries(
        &self,
        inode: &Inode,
        body: &InodeBody,
        inline: &Inline,
    ) -> Result<InlineEntries> {
        let layout = DirLayout {
            tail: false,
            ..self.dir_format(inode, body).layout
        };
        let bad = |detail: String| {
            self.vol.noted(Err(FsError::corrupt(
                WHAT,
                0,
                format!("inode {}, inline data: {detail}", inode.ino),
            )))
        };
        let (head, rest) = inline.parts();
        let Some((parent, first)) = head.split_first_chunk::<PARENT>() else {
            return bad("no room for the parent".into());
        };
        let parent = Ino::from_le_bytes(*parent);
        if parent == 0 || parent > self.vol.geo.inodes_count {
            return bad(format!("the parent is inode {parent}"));
        }
        let mut entries = Vec::new();
        for region in [first, rest] {
            for entry in dirent::inline_entries(region, &layout) {
                match entry {
                    Ok(e) if e.inode != 0 => {
                        entries.push((e.inode, e.file_type, e.name.to_vec()));
                    }
                    Ok(_) => {}
                    Err(e) => return bad(e.to_string()),
                }
            }
        }
        Ok(InlineEntries { parent, entries })
    }

    pub(super) fn inline_look(&self, inode: &Inode, body: &InodeBody) -> Result<InlineEntries> {
        self.inline_entries(inode, body, &self.data.inline(inode, body)?)
    }

    pub(super) fn inline_find(
        &self,
        inode: &Inode,
        body: &InodeBody,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let held = self.inline_look(inode, body)?.entries;
        let found = held.into_iter().find(|(_, _, n)| n == name);
        Ok(found.map(|(ino, ..)| Found { place: None, ino }))
    }

    /// Gives an empty directory its first block, with `.`, `..` and these entries.
    fn dir_fill(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        held: &InlineEntries,
    ) -> Result<()> {
        self.dir_init(h, inode, body, held.parent)?;
        let format = self.dir_format(inode, body);
        let block = self.dir_leaf(inode, body, format, 0)?;
        self.dir_change(h, format, &block, |b| {
            for (ino, kind, name) in &held.entries {
                dirent::insert(b, &format.layout, name, *ino, *kind)?;
            }
            Ok(())
        })
    }

    /// Moves the entries out of an inline directory before they change. The caller holds no lock.
    ///
    /// # Errors
    /// As for [`move_out`](Self::move_out).
    pub(crate) fn dir_move_out(&self, dir: &Inode) -> Result<()> {
        if !dir.body.read().is_inline() {
            return Ok(());
        }
        let mut body = dir.body.write();
        if body.links() == 0 || !body.is_dir() {
            return Ok(());
        }
        self.move_out(dir, &mut body)
    }

    /// Moves the entries of an inline directory to a block. The caller holds the directory's lock
    /// and no handle.
    ///
    /// # Errors
    /// ENOSPC; EUCLEAN.
    pub(crate) fn move_out(&self, dir: &Inode, body: &mut InodeBody) -> Result<()> {
        if !body.is_inline() {
            return Ok(());
        }
        let held = self.inline_look(dir, body)?;
        self.data.move_out_by(dir, body, |h, body| {
            body.set_size(0);
            self.dir_fill(h, dir, body, &held)
        })
    }
}
