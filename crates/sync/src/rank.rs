//! The lock order: deadlocks are impossible because locks are taken in rising rank only.

/// The places in the lock order, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// One rename that moves a directory at a time (ext4: `s_vfs_rename_mutex`).
    Rename = 1,
    /// Syncing one file by a sync record of its own.
    FileSync = 2,
    /// An inode (ext4: `i_rwsem`). Parents before children, equals by number.
    Inode = 3,
    /// An open journal handle. It is no lock, but its owner must not wait for an earlier rank.
    Handle = 4,
    /// Writing back the dirty data of one inode.
    WriteBack = 5,
    /// References to extended attribute values in inodes of their own (ext4: `ea_inode`).
    Values = 6,
    /// The orphan list.
    Orphan = 7,
    /// Quota accounts.
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
