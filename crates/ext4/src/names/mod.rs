//! Directories and the operations on names.
//!
//! Every operation here follows one pattern: throttle with no lock held; lock the directories (and
//! then what their entries name); look up, check and plan; reserve the space and open a journal
//! handle big enough for the worst case; change; note; release. Whatever can be refused is refused
//! before the first change, so an error leaves nothing changed. At the end, what is to be durable
//! at once is made so.
//!
//! Locks: a directory before what its entries name. Two directories are locked by a rename only:
//! the upper one first when one lies below the other, else by inode number; for that, a rename
//! between directories holds `rename_lock`, under which no directory moves. Of two children,
//! directories come before other files, equals by inode number.

mod checks;
mod create;
pub(crate) mod dir;
mod link;
mod lookup;
mod readdir;
mod redo;
mod rename;
mod store;
mod tmpfile;
mod tree;
mod unlink;

pub(crate) use create::New;
use stetfs_journal::{Credits, Handle};
pub(crate) use store::Namespace;

use crate::data::credits::APPEND_DIR_BLOCK;
use crate::error::Result;
use crate::inode::{Inode, InodeBody};
use dir::Plan;

/// Credits to carry out a planned insertion.
fn insert_credits(plan: &Plan) -> Credits {
    plan.changed_blocks + plan.new_blocks * APPEND_DIR_BLOCK
}

impl Namespace {
    /// Notes for records of files that a name came.
    fn note_name(&self, h: &Handle<'_>, dir: &Inode, name: &[u8]) {
        self.inodes.note_change(h, dir, |c, point| {
            c.names.came(name, point, &self.vol.valid())
        });
    }

    /// A directory whose entries changed: its times, and its inode into the journal.
    fn dir_changed(&self, h: &Handle<'_>, dir: &Inode, body: &mut InodeBody) -> Result<()> {
        let now = self.vol.now();
        body.set_mtime(now);
        body.touch(now);
        self.inodes.write_listing(h, dir, body)
    }

    /// An inode whose links changed: its change time, and itself into the journal.
    fn links_changed(&self, h: &Handle<'_>, inode: &Inode, body: &mut InodeBody) -> Result<()> {
        body.touch(self.vol.now());
        self.inodes.write_inode(h, inode, body)
    }

    /// Takes away one link, or all of a directory. Without links the inode goes to the orphans,
    /// and when nobody uses it any more it is deleted.
    fn drop_link(&self, h: &Handle<'_>, inode: &Inode, body: &mut InodeBody) -> Result<()> {
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
