//! The content of a snapshot: the tree and its entries.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

/// Seconds and nanoseconds since 1970; the nanoseconds always count forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub i64, pub i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0, self.1)
    }
}

/// One entry. Optional fields are `None` if they were not asked for or do not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Type.
    pub kind: Kind,
    /// Permission bits, with suid, sgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub nlink: u64,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Device number of device nodes: major, minor.
    pub rdev: Option<(u32, u32)>,
    /// Last modification.
    pub mtime: Option<Time>,
    /// Last status change.
    pub ctime: Option<Time>,
    /// Last access.
    pub atime: Option<Time>,
    /// Target of a symlink, escaped.
    pub target: Option<String>,
    /// Hash of the content of a file, see [`content_hash`](super::content_hash).
    pub content: Option<String>,
    /// Extended attributes: name to value (escaped when short, else length and hash).
    pub xattrs: BTreeMap<String, String>,
    /// The first path (in order) of the same inode, for a file with several links.
    pub link_of: Option<String>,
    /// Runs of data in a sparse file: offset, length in bytes.
    pub data: Option<Vec<(u64, u64)>>,
    /// Allocated blocks of 512 bytes.
    pub blocks: Option<u64>,
    /// Inode number.
    pub inode: Option<u64>,
    /// Inode flags.
    pub flags: Option<u32>,
}

/// A snapshot: maps each path below the captured directory to its entry. The directory itself is
/// `""`; paths are escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// All entries by path.
    pub entries: BTreeMap<String, Entry>,
}
