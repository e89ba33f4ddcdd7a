//! Moves: the changes of a rename after the checks.

use crate::data::maps::credits::append_dir_space;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::names::checks::errno;
use crate::names::dir::{NewEntry, Plan};
use crate::names::insert_credits;
use crate::names::rename::Move;
use crate::ops::inodes::NewFile;
use crate::quota::check_project;
use crate::space::credits::{NEW_INODE, ORPHAN, WRITE_INODE};
use crate::types::Ctx;
use std::sync::Arc;
use stetfs_journal::Credits;

/// Credits of a move: the new entry; the old entry and `..`; two directories, source and target;
/// the target's place among the orphans; a whiteout.
fn move_credits(plan: Option<&Plan>, whiteout: bool) -> Credits {
    let white = if whiteout { NEW_INODE + ORPHAN } else { 0 };
    plan.map_or(1, insert_credits) + 2 + 4 * WRITE_INODE + ORPHAN + white
}

impl Fs {
    /// Moves the source to the new name, over the target if there is one. Returns the whiteout that
    /// stays behind, if one was requested.
    pub(crate) fn replace(
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
                let (h, white) = self.space.begin_with_inode(m.dirs.old.ino, credits, |h| {
                    self.new_inode(h, (m.dirs.old, &m.dirs.old_body), ctx, &file)
                })?;
                (h, Some(white))
            }
            None => (self.vol.begin(m.dirs.new.ino, credits)?, None),
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
            // Only the whiteout was made so far, and it has no name yet.
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
