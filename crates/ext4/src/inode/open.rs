//! Files held open.

use std::sync::Arc;

use crate::data::Told;
use crate::error::FsError;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::Ino;

/// A file held open: what an open file description is to the kernel. While it lives the inode stays,
/// with or without a name. Dropping it releases the inode; no lock and no handle may be held then.
pub struct OpenInode {
    /// The volume.
    pub(crate) fs: Arc<Fs>,
    /// The file.
    pub(crate) inode: Arc<Inode>,
    /// Failed home writes of the file that this opener was told of.
    pub(crate) told: Arc<Told>,
    /// Flags of open(2).
    pub flags: i32,
}

impl OpenInode {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// A failed home write of the file that this opener was not told of; now it is.
    pub fn untold_failure(&self) -> Option<FsError> {
        self.inode.dirty.failures.tell(&self.told)
    }

    /// A failure that this opener is to be told of, from before the volume was opened again.
    pub fn adopt_failure(&self, e: FsError) {
        self.inode.dirty.failures.adopt(&self.told, e);
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        self.fs.close_inode(&self.inode);
    }
}
