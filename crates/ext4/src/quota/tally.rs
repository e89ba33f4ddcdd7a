//! What quota knows of an inode in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_ondisk::ext4::quota::QuotaKind;

/// Kinds of quota; the index of what belongs to one is its place in [`QuotaKind::ALL`].
pub(super) const KINDS: usize = QuotaKind::ALL.len();

/// User, group and project of an inode.
pub(crate) type Owner = [u32; KINDS];

/// What an inode uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) owner: Owner,
    /// Bytes.
    pub(crate) space: i64,
    /// 1, and one for each attribute value in an inode of its own: as e2fsck counts, every file
    /// that refers to a value has it. Of an inode from the volume those that it had then do
    /// not count here until somebody asks for them.
    pub(crate) inodes: i64,
}

/// What quota needs to know of an inode in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// What the accounts have of it.
    pub(crate) counted: Usage,
    /// Attribute values in inodes of their own: as many more as it refers to than when `counted`
    /// began.
    pub(crate) values: i64,
    /// It was deleted: all that is left to do is to free its number.
    pub(crate) gone: bool,
    /// What the operation under way may take.
    pub(crate) promise: Option<Arc<Held>>,
}

/// Bytes of the unit of limits of space.
pub(super) const UNIT: u64 = 1024;

/// What an operation may still take. It is counted as used by others meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) ids: [Option<u32>; KINDS],
    pub(super) space: AtomicU64,
    pub(super) inodes: AtomicU64,
}

impl Held {
    /// Whether it is a promise of this id.
    pub(super) fn covers(&self, kind: usize, id: u32) -> bool {
        self.ids.get(kind) == Some(&Some(id))
    }

    /// How much of it is taken by what is counted now.
    pub(super) fn part(&self, space: i64, inodes: i64) -> (u64, u64) {
        let of = |left: &AtomicU64, n: i64| {
            u64::try_from(n)
                .unwrap_or(0)
                .min(left.load(Ordering::Relaxed))
        };
        (of(&self.space, space), of(&self.inodes, inodes))
    }

    /// That was taken, of every id. The accounts are locked, or nobody else has the promise.
    pub(super) fn took(&self, (space, inodes): (u64, u64)) {
        self.space.fetch_sub(space, Ordering::Relaxed);
        self.inodes.fetch_sub(inodes, Ordering::Relaxed);
    }
}
