//! An inode in memory.

use stetfs_sync::timed::atomic::{AtomicBool, AtomicU32, Ordering};
use stetfs_sync::{Mutex, Rank, RwLock, RwLockWriteGuard};

use super::body::InodeBody;
use super::dir_places::DirPlaces;
use super::dirty_data::DirtyData;
use super::read_ahead::ReadAhead;
use super::window::Window;
use crate::durability::MetadataLedger;
use crate::error::{FsError, Result};
use crate::types::{FileType, Ino};

/// An inode in memory.
pub(crate) struct Inode {
    /// Inode number.
    pub(crate) ino: Ino,
    /// Its type, which never changes.
    pub(crate) kind: FileType,
    /// The inode holds the value of an attribute, and no name leads to it.
    pub(crate) value: bool,
    /// The inode's bytes, behind the inode's lock (ext4: `i_rwsem`).
    pub(crate) body: RwLock<InodeBody>,
    /// Data blocks that are newer than their home locations.
    pub(crate) dirty: DirtyData,
    /// The state of read-ahead.
    pub(crate) ahead: ReadAhead,
    /// The ledger of metadata that is not durable yet. A thread never waits while it holds this
    /// lock.
    pub(crate) metadata: Mutex<MetadataLedger>,
    /// Held while the file is synced by a record, because the next record builds on it.
    pub(crate) turn: Mutex<()>,
    /// The space set aside for the file's next blocks.
    pub(crate) window: Mutex<Window>,
    /// The number of open handles. It changes under the lock of the inode's cache shard.
    pub(crate) opens: AtomicU32,
    /// No name is left (`i_links_count` is 0): the inode is deleted when its last user leaves.
    pub(crate) unlinked: AtomicBool,
    /// The inode never had a name, and may get one (O_TMPFILE without O_EXCL).
    pub(crate) linkable: AtomicBool,
    /// The inode is on the orphan list or in the orphan file.
    pub(crate) orphaned: AtomicBool,
    /// The access time is newer than in the inode table. Set under the inode's lock.
    pub(crate) lazy: AtomicBool,
    /// A caller was told the places of the file's blocks (FIBMAP), and may use them directly.
    pub(crate) told: AtomicBool,
    /// The file is in an atomic group. Set under the inode's lock.
    pub(crate) grouped: AtomicBool,
    /// For a directory: its map was checked, and names no block twice.
    pub(crate) blocks_once: AtomicBool,
    /// For a directory: the places of its first blocks.
    pub(crate) places: DirPlaces,
    /// The inode is being deleted or is deleted, and the cache hands it out no more. A thread that
    /// already has it may go on until it is [`deleted`](Self::deleted).
    pub(crate) dead: AtomicBool,
    /// The inode is deleted, and must not change any more. Set under the inode's lock (inode.I5).
    pub(crate) deleted: AtomicBool,
}

impl Inode {
    /// An inode in memory, from its body.
    ///
    /// # Errors
    /// `Corrupt` when the mode names no type: the body was not checked when it was loaded or made.
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

    /// Whether it is a directory. Needs no lock.
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Checks that the inode may still change. A caller checks this first, with the inode's lock
    /// held.
    ///
    /// # Errors
    /// ESTALE when the inode is deleted: the caller waited for the lock while another thread
    /// deleted it (inode.I5).
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(FsError::Errno(libc::ESTALE));
        }
        Ok(())
    }

    /// Locks an inode that was just made. A handle may be open: no name leads to the inode yet, so
    /// no other thread holds its lock, except for a moment one that guessed its number.
    pub(crate) fn lock_new(&self) -> RwLockWriteGuard<'_, InodeBody> {
        loop {
            match self.body.try_write() {
                Some(guard) => return guard,
                None => stetfs_sync::timed::thread::yield_now(),
            }
        }
    }
}
