//! Open files.

use std::sync::Arc;

use crate::data::Opener;
use crate::error::FsError;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::Ino;

/// An open file, as an open file description in the kernel. The inode stays as long as it exists,
/// with or without a name. Dropping it releases the inode; the caller then holds no lock and no
/// handle.
///
/// It may also stand for a file that is open only in the kernel, for one operation
/// ([`Fs::unheld`]).
pub struct OpenInode {
    /// The volume.
    pub(crate) fs: Arc<Fs>,
    /// The file.
    pub(crate) inode: Arc<Inode>,
    /// The opener, who is told of failed write-backs of the file.
    pub(crate) opener: Opener,
    /// Flags of open(2).
    pub flags: i32,
}

/// An open file. Dropping the last reference releases the inode, and deletes it if it was unlinked.
pub type OpenRef = Arc<OpenInode>;

impl OpenInode {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// A failed write-back of the file that this opener was not told of; marks it as told.
    pub fn untold_failure(&self) -> Option<FsError> {
        self.inode.dirty.failures.tell_opener(&self.opener)
    }

    /// Takes over a failure that this opener must be told of, from an earlier opening of the
    /// volume.
    pub fn adopt_failure(&self, e: FsError) {
        if let Opener::Handle(told) = &self.opener {
            self.inode.dirty.failures.adopt(told, e);
        }
    }

    /// Whether the file is open only in the kernel.
    pub(crate) fn is_unheld(&self) -> bool {
        matches!(self.opener, Opener::Caller(_))
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        if !self.is_unheld() {
            self.fs.close_inode(&self.inode);
        }
    }
}
