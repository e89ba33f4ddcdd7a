//! Files held open.

use std::sync::Arc;

use crate::data::Opener;
use crate::error::FsError;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::Ino;

/// A file held open: what an open file description is to the kernel. While it lives the inode
/// stays, with or without a name. Dropping it releases the inode; no lock and no handle may be held
/// then.
///
/// Or a file that is open in the kernel alone, for one operation ([`Fs::unheld`]).
pub struct OpenInode {
    /// The volume.
    pub(crate) fs: Arc<Fs>,
    /// The file.
    pub(crate) inode: Arc<Inode>,
    /// Who is told of failed home writes of the file.
    pub(crate) opener: Opener,
    /// Flags of open(2).
    pub flags: i32,
}

/// A file held open. Dropping it releases the inode (deleting it if it was unlinked).
pub type OpenRef = Arc<OpenInode>;

impl OpenInode {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// A failed home write of the file that this opener was not told of; now it is.
    pub fn untold_failure(&self) -> Option<FsError> {
        self.inode.dirty.failures.tell_opener(&self.opener)
    }

    /// A failure that this opener is to be told of, from before the volume was opened again.
    pub fn adopt_failure(&self, e: FsError) {
        if let Opener::Handle(told) = &self.opener {
            self.inode.dirty.failures.adopt(told, e);
        }
    }

    /// Whether nobody here holds it open.
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
