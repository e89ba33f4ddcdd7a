//! Replay of names in fast commits.

use std::sync::Arc;

use stetfs_journal::{Change, Entry};
use stetfs_ondisk::ext4::inode::{InodeFlags, InodeView};

use super::{Replay, wrong};
use crate::error::Result;
use crate::inode::Inode;
use crate::ops::names::New;
use crate::types::Ino;

impl<'a> Replay<'a> {
    /// Makes a name lead to this inode.
    pub(super) fn name(&mut self, i: usize, entry: &Entry) -> Result<()> {
        let Some(dir) = self.directory(entry.parent)? else {
            // The directory was removed before the crash; the file may have another name.
            return Ok(());
        };
        match self.named(&dir, &entry.name)? {
            Some(ino) if ino == entry.ino => return Ok(()),
            Some(_) => self.take_away(&dir, &entry.name)?,
            None => {}
        }
        if self.in_use(entry.ino)? {
            let inode = self.inode(entry.ino)?;
            if inode.is_dir() {
                let ino = entry.ino;
                return Err(wrong(format!("a second name for directory {ino}")));
            }
            drop(inode);
            return self.fs.redo_link(entry.ino, dir.ino, &entry.name);
        }
        let unnamed = self.unnamed.remove(&entry.ino).unwrap_or_default();
        let later = || match self.changes_of(i, entry.ino) {
            Some(Change::Inode { bytes, .. }) => Some(&bytes[..]),
            _ => None,
        };
        // For an inode that was deleted later, the log has only names.
        let Some(bytes) = unnamed.bytes.or_else(later) else {
            return Ok(());
        };
        self.make(&dir, &entry.name, entry.ino, bytes)?;
        for range in unnamed.ranges {
            self.set_range(i, entry.ino, range)?;
        }
        Ok(())
    }

    /// Makes a new inode, with its first name.
    fn make(&self, dir: &Arc<Inode>, name: &[u8], ino: Ino, bytes: &[u8]) -> Result<()> {
        let mut whole = vec![0; usize::from(self.fs.vol.geo.inode_size)];
        let part = whole.get_mut(..bytes.len());
        part.ok_or_else(|| {
            wrong(format!(
                "inode {ino} has {} bytes, more than inodes of this volume",
                bytes.len()
            ))
        })?
        .copy_from_slice(bytes);
        let mut view = InodeView::new(whole)?;
        if view.is_dir() && view.flags().contains(InodeFlags::INLINE_DATA) {
            // Its entries follow one by one.
            view.set_flags(view.flags() - InodeFlags::INLINE_DATA);
            if let Some(attributes) = view.xattr_area_mut() {
                attributes.fill(0);
            }
        }
        let new = New {
            mode: u32::from(view.mode()),
            again: Some((ino, view.bytes())),
            ..New::default()
        };
        self.fs.redo_make(dir.ino, name, &new)?;
        self.fs.date(dir.ino, view.ctime())?;
        self.set_attributes(ino, view.bytes(), true)
    }

    /// Removes a name, if it still names this inode.
    pub(super) fn unname(&mut self, i: usize, entry: &Entry) -> Result<()> {
        let Some(dir) = self.directory(entry.parent)? else {
            return Ok(());
        };
        if self.named(&dir, &entry.name)? != Some(entry.ino) {
            return Ok(());
        }
        let inode = self.inode(entry.ino)?;
        if let Some(Change::Inode { bytes, .. }) = self.changes_of(i, entry.ino) {
            let later = InodeView::new(&bytes[..])?;
            let mut body = inode.body.write();
            let same = later.generation() == body.generation() && later.links() > 0;
            if same && !inode.is_dir() && body.links() == 1 {
                // It has other names, which are not counted yet (fast.F4).
                body.set_links(2);
            }
        }
        drop(inode);
        self.take_away(&dir, &entry.name)
    }

    fn take_away(&self, dir: &Inode, name: &[u8]) -> Result<()> {
        match self.fs.redo_remove(dir.ino, name)? {
            true => Ok(()),
            false => Err(wrong(format!("a name in directory {} is missing", dir.ino))),
        }
    }

    /// The next change of an inode's attributes behind change `i`.
    fn changes_of(&self, i: usize, ino: Ino) -> Option<&'a Change> {
        let at = self.next_attributes(i, ino)?;
        self.changes.get(at).copied()
    }

    /// A directory, if the number belongs to one now.
    fn directory(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if !self.in_use(ino)? {
            return Ok(None);
        }
        let dir = self.inode(ino)?;
        let there = dir.is_dir() && dir.body.read().links() > 0;
        Ok(there.then_some(dir))
    }

    fn named(&self, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
        let body = dir.body.read();
        let found = self.fs.names.dir_find(dir, &body, name)?;
        Ok(found.map(|found| found.ino))
    }
}
