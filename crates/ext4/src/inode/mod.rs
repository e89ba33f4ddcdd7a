//! Inodes in memory: cache, attributes, creation and deletion, orphans.
//!
//! An [`Inode`] is shared by everybody who uses the file; its [`InodeBody`] holds the bytes of the
//! on-disk inode behind the inode's lock. A change is made to the body and put into the journal
//! with `InodeStore::write_inode` before the lock is released, so the inode table block always
//! equals the body and an inode can leave memory at any time nobody holds it.

mod attr;
mod body;
mod cache;
mod create;
mod delete;
#[cfg(test)]
mod deleted_tests;
mod hold;
mod lazy;
mod open;
mod orphan;
mod orphans;
mod settle;
mod store;
#[cfg(test)]
mod tests;
mod write;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use stetfs_sync::{Mutex, Rank, RwLock, RwLockWriteGuard};

pub(crate) use attr::without_suidgid;
pub(crate) use body::{InodeBody, is_ordinary};
pub(crate) use create::NewFile;
pub use open::{OpenInode, OpenRef};
pub use orphans::OrphansFinished;
pub(crate) use orphans::{OrphanFile, OrphanPlace, Orphans};
pub(crate) use store::InodeStore;

use crate::data::{DirPlaces, DirtyData, ReadAhead};
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::space::Window;
use crate::types::{FileType, Ino};

/// An inode in memory.
pub(crate) struct Inode {
    /// Inode number.
    pub(crate) ino: Ino,
    /// Its type, which never changes.
    pub(crate) kind: FileType,
    /// It holds the value of an attribute, and no name leads to it.
    pub(crate) value: bool,
    /// The inode's bytes, behind the inode's lock (ext4: `i_rwsem`).
    pub(crate) body: RwLock<InodeBody>,
    /// Data blocks that are newer than their homes.
    pub(crate) dirty: DirtyData,
    /// Where it is being read.
    pub(crate) ahead: ReadAhead,
    /// What of it is not durable yet. Nobody waits under this lock.
    pub(crate) metadata: Mutex<MetadataLedger>,
    /// Held while the file is synced by a record: the next one builds on it.
    pub(crate) turn: Mutex<()>,
    /// Where the file's next blocks are set aside.
    pub(crate) window: Mutex<Window>,
    /// How often it is held open. Changed under the lock of its cache shard.
    pub(crate) opens: AtomicU32,
    /// No name is left (`i_links_count` is 0): goes when the last user does.
    pub(crate) unlinked: AtomicBool,
    /// Never had a name, and may get one (O_TMPFILE without O_EXCL).
    pub(crate) linkable: AtomicBool,
    /// On the orphan list or in the orphan file.
    pub(crate) orphaned: AtomicBool,
    /// Its access time is newer than in the inode table. Set under its lock.
    pub(crate) lazy: AtomicBool,
    /// Somebody was told where its blocks lie.
    pub(crate) told: AtomicBool,
    /// In an atomic group. Set under its lock.
    pub(crate) grouped: AtomicBool,
    /// Of a directory: its map was looked through, and names no block twice.
    pub(crate) blocks_once: AtomicBool,
    /// Of a directory: where its blocks lie.
    pub(crate) places: DirPlaces,
    /// Being deleted or deleted: nobody gets it any more. Who has it may go on until it is
    /// [`deleted`](Self::deleted).
    pub(crate) dead: AtomicBool,
    /// Deleted: nothing of it may change any more. Set under its lock (inode.I5).
    pub(crate) deleted: AtomicBool,
}

impl Inode {
    /// # Errors
    /// The body has no type: it was not checked when it was loaded or made.
    pub(crate) fn new(ino: Ino, body: InodeBody, metadata: MetadataLedger) -> Result<Inode> {
        let unlinked = body.links() == 0;
        let kind = body.kind().ok_or_else(|| {
            let detail = format!("inode {ino}: mode {:o} names no type", body.mode());
            FsError::corrupt("inode", 0, detail)
        })?;
        Ok(Inode {
            ino,
            kind,
            value: body.is_value(),
            body: RwLock::new(Rank::Inode, body),
            dirty: DirtyData::default(),
            ahead: ReadAhead::default(),
            turn: Mutex::new(Rank::FileSync, ()),
            metadata: Mutex::new(Rank::InodeLeaf, metadata),
            window: Mutex::new(Rank::InodeLeaf, Window::default()),
            opens: AtomicU32::new(0),
            unlinked: AtomicBool::new(unlinked),
            linkable: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            lazy: AtomicBool::new(false),
            told: AtomicBool::new(false),
            grouped: AtomicBool::new(false),
            blocks_once: AtomicBool::new(false),
            places: DirPlaces::default(),
            dead: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
        })
    }

    /// Whether it is a directory; needs no lock.
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// To be asked by who changes it, first and with its lock.
    ///
    /// # Errors
    /// ESTALE when it is deleted: whoever waited for its lock came too late (inode.I5).
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        Ok(())
    }

    /// Locks an inode that was just made. No name leads to it, so nobody holds its lock (who
    /// guesses its number, for a moment at most): it may be taken with a handle open.
    pub(crate) fn lock_new(&self) -> RwLockWriteGuard<'_, InodeBody> {
        loop {
            match self.body.try_write() {
                Some(guard) => return guard,
                None => std::thread::yield_now(),
            }
        }
    }
}
