//! The quota state of an inode in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stetfs_ondisk::ext4::quota::QuotaKind;

/// The number of quota kinds. Arrays by kind use the order of [`QuotaKind::ALL`].
pub(crate) const KINDS: usize = QuotaKind::ALL.len();

/// User, group and project of an inode.
pub(crate) type Owner = [u32; KINDS];

/// The space and inodes that an inode uses, and its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) owner: Owner,
    /// Bytes.
    pub(crate) space: i64,
    /// 1, and one more for each attribute value in an inode of its own: as in e2fsck, every file
    /// that refers to a value counts it. For an inode from the volume, the values that it had when
    /// it was loaded do not count here until they are asked for.
    pub(crate) inodes: i64,
}

/// The quota state of an inode in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// The usage that the accounts have counted for the inode.
    pub(crate) counted: Usage,
    /// Change of the number of attribute values in inodes of their own since `counted` began.
    pub(crate) values: i64,
    /// The inode was deleted: only its number is still to be freed.
    pub(crate) gone: bool,
    /// The promise of the operation under way.
    pub(crate) promise: Option<Arc<Held>>,
}

/// Bytes in the unit of space limits.
pub(crate) const UNIT: u64 = 1024;

/// A promise of quota: what an operation may still take. Others see it as used meanwhile.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) ids: [Option<u32>; KINDS],
    pub(crate) space: AtomicU64,
    pub(crate) inodes: AtomicU64,
}

impl Held {
    /// Whether the promise is for this id.
    pub(crate) fn covers(&self, kind: usize, id: u32) -> bool {
        self.ids.get(kind) == Some(&Some(id))
    }

    /// The part of a usage that the promise covers.
    pub(crate) fn part(&self, space: i64, inodes: i64) -> (u64, u64) {
        let of = |left: &AtomicU64, n: i64| {
            u64::try_from(n)
                .unwrap_or(0)
                .min(left.load(Ordering::Relaxed))
        };
        (of(&self.space, space), of(&self.inodes, inodes))
    }

    /// Takes usage out of the promise, for every id. The caller has locked the accounts, or is the
    /// only holder of the promise.
    pub(crate) fn took(&self, (space, inodes): (u64, u64)) {
        self.space.fetch_sub(space, Ordering::Relaxed);
        self.inodes.fetch_sub(inodes, Ordering::Relaxed);
    }
}
