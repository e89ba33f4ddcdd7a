//! The changes of a rename, after everything is locked and looked up.

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::dirent::FileType as EntryType;

use super::{Dirs, Move};
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::inode::{Inode, InodeBody};
use crate::names::Namespace;
use crate::names::checks::errno;
use crate::quota::check_project;
use crate::space::credits::WRITE_INODE;
use crate::types::Ino;

/// Credits of an exchange: two entries, two `..`, four inodes.
const EXCHANGE_CREDITS: Credits = 4 + 4 * WRITE_INODE;

impl Namespace {
    /// Makes the changes of a move, except adding a new name that did not exist.
    pub(crate) fn finish_move(
        &self,
        h: &Handle<'_>,
        m: &mut Move<'_>,
        changes_parent: bool,
        entries_move: bool,
        white: Option<&Inode>,
    ) -> Result<()> {
        let to_source = m.source.target();
        if let Some(target) = &m.target {
            self.dir_retarget(h, m.dirs.new, m.dirs.new_body(), target.found, to_source)?;
        }
        // Adding the new name may have moved the old one to another block.
        let found = if entries_move && m.dirs.same() {
            let found = self.dir_find(m.dirs.old, &m.dirs.old_body, m.old.name)?;
            let lost =
                || FsError::corrupt("directory", 0, "a name was lost when its block was split");
            found.ok_or_else(lost)?
        } else {
            m.source.found.clone()
        };
        match white {
            Some(white) => {
                let to_white = (white.ino, EntryType::CharDevice);
                self.dir_retarget(h, m.dirs.old, &m.dirs.old_body, &found, to_white)?;
            }
            None => self.dir_remove(h, m.dirs.old, &m.dirs.old_body, &found)?,
        }
        self.note_moved(h, m.dirs.old, m.old.name, m.source.inode);
        if let Some(white) = white {
            self.inodes
                .note_change(h, white, MetadataLedger::names_changed);
        }
        self.note_name(h, m.dirs.new, m.new.name);
        if let Some(target) = &mut m.target {
            if target.body.is_dir() {
                self.drop_subdir(m.dirs.new_body_mut());
            }
            self.drop_link(h, target.inode, &mut target.body)?;
            let (name, inode) = (m.new.name, target.inode);
            self.note_moved(h, m.dirs.new, name, inode);
        }
        if changes_parent {
            self.dir_set_parent(h, m.source.inode, &mut m.source.body, m.new.dir)?;
            self.drop_subdir(&mut m.dirs.old_body);
            self.add_subdir(m.dirs.new_body_mut());
        }
        self.links_changed(h, m.source.inode, &mut m.source.body)?;
        self.both_changed(h, &mut m.dirs)
    }

    /// Exchanges the inodes of two names.
    pub(crate) fn exchange(&self, m: &mut Move<'_>) -> Result<()> {
        let Move {
            dirs,
            source: a,
            target: Some(b),
            old,
            new,
        } = m
        else {
            return errno(libc::ENOENT);
        };
        check_project(dirs.new_body(), &a.body)?;
        check_project(&dirs.old_body, &b.body)?;
        let (a_dir, b_dir) = (a.body.is_dir(), b.body.is_dir());
        let crosses = !dirs.same();
        if crosses {
            if b_dir && !a_dir {
                self.may_add_subdir(&dirs.old_body)?;
            }
            if a_dir && !b_dir {
                self.may_add_subdir(dirs.new_body())?;
            }
            for (child, is_dir, dir) in [(&*a, a_dir, old.dir), (&*b, b_dir, new.dir)] {
                if is_dir {
                    self.check_parent(child.inode, &child.body, dir)?;
                }
            }
        }
        let h = self.vol.begin(dirs.new.ino, EXCHANGE_CREDITS)?;
        let (to_a, to_b) = (a.target(), b.target());
        self.vol.whole(|| {
            self.dir_retarget(&h, dirs.old, &dirs.old_body, a.found, to_b)?;
            self.dir_retarget(&h, dirs.new, dirs.new_body(), b.found, to_a)?;
            if crosses && a_dir {
                self.dir_set_parent(&h, a.inode, &mut a.body, new.dir)?;
            }
            if crosses && b_dir {
                self.dir_set_parent(&h, b.inode, &mut b.body, old.dir)?;
            }
            // The numbers of subdirectories change only if exactly one of them is a directory.
            if crosses && a_dir && !b_dir {
                self.drop_subdir(&mut dirs.old_body);
                self.add_subdir(dirs.new_body_mut());
            }
            if crosses && b_dir && !a_dir {
                self.drop_subdir(dirs.new_body_mut());
                self.add_subdir(&mut dirs.old_body);
            }
            self.links_changed(&h, a.inode, &mut a.body)?;
            self.links_changed(&h, b.inode, &mut b.body)?;
            self.both_changed(&h, dirs)
        })?;
        self.note_moved(&h, dirs.old, old.name, a.inode);
        self.note_moved(&h, dirs.new, new.name, b.inode);
        Ok(())
    }

    /// Notes that an inode lost this name in `dir`, but was not unlinked.
    fn note_moved(&self, h: &Handle<'_>, dir: &Inode, name: &[u8], inode: &Inode) {
        self.inodes
            .note_change(h, inode, MetadataLedger::names_changed);
        self.inodes.note_change(h, dir, |c, point| {
            c.names.gone(name, false, point, &self.vol.valid())
        });
    }

    fn both_changed(&self, h: &Handle<'_>, dirs: &mut Dirs<'_>) -> Result<()> {
        self.dir_changed(h, dirs.old, &mut dirs.old_body)?;
        match &mut dirs.new_body {
            Some(body) => self.dir_changed(h, dirs.new, body),
            None => Ok(()),
        }
    }

    /// Checks that `..` of a directory names the directory that has its name: a move would hide
    /// this damage.
    pub(crate) fn check_parent(&self, inode: &Inode, body: &InodeBody, dir: Ino) -> Result<()> {
        match self.dir_parent(inode, body)? {
            parent if parent == dir => Ok(()),
            parent => {
                let detail = format!(
                    "directory {} is in directory {dir}, but its .. names {parent}",
                    inode.ino
                );
                self.vol
                    .noted(Err(FsError::corrupt("directory", 0, detail)))
            }
        }
    }
}
