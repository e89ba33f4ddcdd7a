//! The lock order.

/// The places in the lock order, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// One rename that moves a directory at a time (ext4: `s_vfs_rename_mutex`).
    Rename = 1,
    /// Syncing one file by a record of its own.
    FileSync = 2,
    /// An inode (ext4: `i_rwsem`). Parents before children, equals by number.
    Inode = 3,
    /// An open journal handle: not a lock, but it must not wait for what ranks before it.
    Handle = 4,
    /// Writing home the dirty data of one inode.
    DataFlush = 5,
    /// References to attribute values that have inodes of their own.
    Values = 6,
    /// The orphan list.
    Orphan = 7,
    /// Accounts of quota.
    Quota = 8,
    /// A block group: bitmaps and counters. Ascending by group.
    Group = 9,
    /// The superblock's changing fields.
    Super = 10,
    /// A shard of the inode cache.
    InodeCache = 11,
    /// Small leaf state of an inode (sync points, dirty map).
    InodeLeaf = 12,
}
