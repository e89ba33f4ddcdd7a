//! The changes in fast commits of Linux, for people and scripts.

use serde::Serialize;
use stetfs_ondisk::jbd2::fast_commit::{Change, Entry};

/// A change in a fast commit.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum FastChange {
    /// Mapped blocks of a file.
    Add {
        /// Inode number of the file.
        inode: u32,
        /// First file block.
        first: u32,
        /// Number of blocks.
        count: u32,
        /// The first block's number on the volume.
        block: u64,
        /// Whether they read as zeroes.
        unwritten: bool,
    },
    /// Unmapped blocks of a file.
    Remove {
        /// Inode number of the file.
        inode: u32,
        /// First file block.
        first: u32,
        /// Number of blocks.
        count: u32,
    },
    /// The name of a new inode.
    Create(FastName),
    /// A name that exists.
    Link(FastName),
    /// A name that was removed.
    Unlink(FastName),
    /// The attributes of an inode.
    Inode {
        /// Inode number.
        inode: u32,
    },
}

/// A name in a fast commit.
#[derive(Clone, Debug, Serialize)]
pub struct FastName {
    /// Inode number of the directory.
    pub directory: u32,
    /// The name; bytes that are not ASCII are escaped.
    pub name: String,
    /// Inode number of the file.
    pub inode: u32,
}

impl From<Entry> for FastName {
    fn from(entry: Entry) -> FastName {
        FastName {
            directory: entry.parent,
            name: entry.name.escape_ascii().to_string(),
            inode: entry.ino,
        }
    }
}

impl From<Change> for FastChange {
    fn from(change: Change) -> FastChange {
        match change {
            Change::AddRange { ino, extent } => FastChange::Add {
                inode: ino,
                first: extent.block,
                count: extent.len,
                block: extent.start,
                unwritten: extent.unwritten,
            },
            Change::DelRange { ino, block, len } => FastChange::Remove {
                inode: ino,
                first: block,
                count: len,
            },
            Change::Create(entry) => FastChange::Create(entry.into()),
            Change::Link(entry) => FastChange::Link(entry.into()),
            Change::Unlink(entry) => FastChange::Unlink(entry.into()),
            Change::Inode { ino, .. } => FastChange::Inode { inode: ino },
        }
    }
}
