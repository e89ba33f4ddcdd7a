//! The second half of a rename: everything is locked and looked up.

use std::sync::Arc;

use stetfs_journal::{Credits, Handle};
use stetfs_ondisk::ext4::dirent::FileType as EntryType;

use super::{Dirs, Move};
use crate::data::credits::append_dir_space;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody, NewFile};
use crate::names::Namespace;
use crate::names::checks::errno;
use crate::names::dir::{NewEntry, Plan};
use crate::names::insert_credits;
use crate::quota::check_project;
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::{Ctx, Ino};

/// Credits of an exchange: two entries, two `..`, four inodes.
const EXCHANGE_CREDITS: Credits = 4 + 4 * WRITE_INODE;

/// Credits of a move: the new entry; the old entry and `..`; two directories, source and target;
/// the target's place among the orphans; a whiteout.
fn move_credits(plan: Option<&Plan>, whiteout: bool) -> Credits {
    let white = if whiteout { NEW_INODE + ORPHAN } else { 0 };
    plan.map_or(1, insert_credits) + 2 + 4 * WRITE_INODE + ORPHAN + white
}

impl Fs {
    /// Moves the source to the new name, over the target if there is one. Answers the whiteout that
    /// stays behind, if one was asked for.
    pub(super) fn replace(
        &self,
        ctx: &Ctx,
        m: &mut Move<'_>,
        whiteout: bool,
    ) -> Result<Option<Arc<Inode>>> {
        let changes_parent = m.source.body.is_dir() && !m.dirs.same();
        check_project(m.dirs.new_body(), &m.source.body)?;
        match &m.target {
            Some(target) => match (m.source.body.is_dir(), target.body.is_dir()) {
                (true, false) => return errno(libc::ENOTDIR),
                (false, true) => return errno(libc::EISDIR),
                (true, true) if !self.names.dir_is_empty(target.inode, &target.body)? => {
                    return errno(libc::ENOTEMPTY);
                }
                _ => {}
            },
            None if changes_parent => self.names.may_add_subdir(m.dirs.new_body())?,
            None => {}
        }
        if changes_parent {
            self.names
                .check_parent(m.source.inode, &m.source.body, m.old.dir)?;
        }
        let plan = match &m.target {
            Some(_) => None,
            None => Some(
                self.names
                    .dir_plan(m.dirs.new, m.dirs.new_body(), m.new.name)?,
            ),
        };
        let room = plan.as_ref().map_or(0, |p| append_dir_space(p.new_blocks));
        let _room = self.space.reserve(room, self.space.privileged(ctx))?;
        let new_blocks = plan.as_ref().map_or(0, |p| p.new_blocks);
        let _grows = self.promise_dir(ctx, m.dirs.new_body_mut(), new_blocks)?;
        let owner = self.owner_in(ctx, &m.dirs.old_body);
        let promise = match whiteout {
            true => Some(self.promise(ctx, owner, 0, 1)?),
            false => None,
        };
        let credits = move_credits(plan.as_ref(), whiteout);
        let (h, white) = match &promise {
            Some(promise) => {
                let file = NewFile {
                    mode: libc::S_IFCHR,
                    rdev: 0,
                    again: None,
                    promise,
                };
                let (h, white) = self.space.begin_with_inode(credits, |h| {
                    self.new_inode(h, (m.dirs.old, &m.dirs.old_body), ctx, &file)
                })?;
                (h, Some(white))
            }
            None => (self.vol.journal.begin(credits)?, None),
        };
        let entries_move = plan.as_ref().is_some_and(|p| p.new_blocks > 0);
        if let Some(plan) = plan {
            let (ino, kind) = m.source.target();
            let new_dir = m.dirs.new;
            let entry = NewEntry {
                ino,
                kind,
                name: m.new.name,
            };
            // Nothing but the whiteout was made so far, and it has no name yet.
            self.names
                .dir_insert(&h, new_dir, m.dirs.new_body_mut(), plan, entry)
                .inspect_err(|_| {
                    if let Some(inode) = &white {
                        self.drop_new(&h, inode, &mut inode.lock_new());
                    }
                })?;
        }
        self.vol.whole(|| {
            self.names
                .finish_move(&h, m, changes_parent, entries_move, white.as_deref())
        })?;
        Ok(white)
    }
}

impl Namespace {
    /// The changes of a move, but for a new name that did not exist.
    fn finish_move(
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
                || FsError::corrupt("directory", 0, "a name got lost when its block was split");
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

    /// Swaps what two names name.
    pub(super) fn exchange(&self, m: &mut Move<'_>) -> Result<()> {
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
        let h = self.vol.journal.begin(EXCHANGE_CREDITS)?;
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
            // Only if one of them alone is a directory do the numbers of subdirectories change.
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

    /// Notes that what was named so in `dir` is not any more, and not by being unlinked.
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

    /// `..` of a directory must name the directory its name is in, or moving it would hide damage.
    fn check_parent(&self, inode: &Inode, body: &InodeBody, dir: Ino) -> Result<()> {
        match self.dir_parent(inode, body)? {
            parent if parent == dir => Ok(()),
            parent => {
                let detail = format!(
                    "directory {} lies in {dir}, but its .. names {parent}",
                    inode.ino
                );
                self.vol
                    .noted(Err(FsError::corrupt("directory", 0, detail)))
            }
        }
    }
}
