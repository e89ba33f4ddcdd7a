//! Rename: an inode gets another name. This file has the types for locks and lookups; [`apply`]
//! makes the changes.

mod apply;

use stetfs_journal::Ino;
use stetfs_ondisk::ext4::dirent::FileType as EntryType;
use stetfs_sync::RwLockWriteGuard;

use super::dir::Found;
use crate::inode::{Inode, InodeBody};

pub(crate) type Locked<'a> = RwLockWriteGuard<'a, InodeBody>;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
}

/// One or two directories, locked.
pub(crate) struct Dirs<'a> {
    pub(crate) old: &'a Inode,
    pub(crate) new: &'a Inode,
    pub(crate) old_body: Locked<'a>,
    /// `None` when both are the same.
    pub(crate) new_body: Option<Locked<'a>>,
}

impl Dirs<'_> {
    pub(crate) fn same(&self) -> bool {
        self.new_body.is_none()
    }

    pub(crate) fn new_body(&self) -> &InodeBody {
        self.new_body.as_ref().unwrap_or(&self.old_body)
    }

    pub(crate) fn new_body_mut(&mut self) -> &mut InodeBody {
        self.new_body.as_mut().unwrap_or(&mut self.old_body)
    }
}

/// A named inode: its entry, and the locked inode.
pub(crate) struct Child<'a> {
    pub(crate) found: &'a Found,
    pub(crate) inode: &'a Inode,
    pub(crate) body: Locked<'a>,
}

impl Child<'_> {
    /// The content of an entry that names it.
    pub(crate) fn target(&self) -> (Ino, EntryType) {
        (
            self.inode.ino,
            EntryType::from_mode(u32::from(self.body.mode())),
        )
    }
}

/// A rename with all its objects locked and looked up.
pub(crate) struct Move<'a> {
    pub(crate) dirs: Dirs<'a>,
    pub(crate) source: Child<'a>,
    pub(crate) target: Option<Child<'a>>,
    pub(crate) old: At<'a>,
    pub(crate) new: At<'a>,
}
