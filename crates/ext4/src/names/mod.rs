//! Directories, and the steps that the operations on names (`ops/names`) have in common.
//!
//! Every operation on names follows one pattern: throttle with no lock held; lock the directories
//! and then the inodes that their entries name; look up, check and plan; reserve the space and open
//! a journal handle for the worst case; change; note the change for records; release. Everything
//! that can be refused is refused before the first change, so an error leaves nothing changed. At
//! the end, the operation makes durable what must be durable before it returns.
//!
//! Locks: a directory before the inodes that its entries name. Only a rename locks two directories:
//! the upper one first when one lies below the other, else in inode order. For this, a rename
//! between directories holds `rename_lock`, under which no directory moves. Of two children,
//! directories come before other files, and equal kinds are in inode order.

pub(crate) mod checks;
pub(crate) mod dir;
mod lookup;
mod readdir;
pub(crate) mod rename;
pub(crate) mod store;
pub(crate) mod tree;

use stetfs_journal::{Credits, Handle};
pub(crate) use store::Namespace;

use crate::data::maps::credits::APPEND_DIR_BLOCK;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use dir::Plan;

/// Credits to apply a planned insertion.
pub(crate) fn insert_credits(plan: &Plan) -> Credits {
    plan.changed_blocks + plan.new_blocks * APPEND_DIR_BLOCK
}

impl Namespace {
    /// Notes for records of files that a name was added.
    pub(crate) fn note_name(&self, h: &Handle<'_>, dir: &Inode, name: &[u8]) {
        self.inodes.note_change(h, dir, |c, point| {
            c.names.came(name, point, &self.vol.valid())
        });
    }

    /// Updates a directory whose entries changed: sets its times, and writes its inode.
    pub(crate) fn dir_changed(
        &self,
        h: &Handle<'_>,
        dir: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        let now = self.vol.now();
        body.set_mtime(now);
        body.touch(now);
        self.inodes.write_listing(h, dir, body)
    }

    /// Updates an inode whose links changed: sets its change time, and writes it.
    pub(crate) fn links_changed(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        body.touch(self.vol.now());
        self.inodes.write_inode(h, inode, body)
    }

    /// Removes one link, or all links of a directory. An inode without links becomes an orphan, and
    /// is deleted when it has no users any more.
    pub(crate) fn drop_link(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
    ) -> Result<()> {
        let left = if body.is_dir() {
            0
        } else {
            body.links().saturating_sub(1)
        };
        body.set_links(left);
        if left == 0 {
            self.inodes.orphan_add(h, inode, body)?;
        }
        self.links_changed(h, inode, body)
    }
}
