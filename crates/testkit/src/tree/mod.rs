//! Snapshots of directory trees as a user sees them, and their differences.
//!
//! A [`Tree`] holds everything that POSIX calls show of every entry below a directory. Two
//! snapshots of the same file system, read through different implementations, must be equal.

mod capture;
mod diff;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use capture::{content_hash, escape, xattr_value};
pub use diff::diff;

/// What a snapshot records beyond the basics (type, mode, owner, links, size, mtime).
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Hash the content of regular files.
    pub content: bool,
    /// Extended attributes, POSIX ACLs included.
    pub xattrs: bool,
    /// Times of last access. Off by default: mounting and reading change them.
    pub atime: bool,
    /// Times of last status change.
    pub ctime: bool,
    /// Times of last modification.
    pub mtime: bool,
    /// Where files have data and where holes, as SEEK_DATA and SEEK_HOLE tell.
    pub sparse: bool,
    /// Blocks allocated (`st_blocks`).
    pub blocks: bool,
    /// Inode numbers.
    pub inodes: bool,
    /// Inode flags (`FS_IOC_GETFLAGS`) of files and directories.
    pub flags: bool,
    /// Sizes of directories.
    pub dir_sizes: bool,
    /// Paths (relative, escaped as in the snapshot) that are left out with all below them.
    pub exclude: Vec<String>,
}

impl Default for CaptureOptions {
    /// What has to be equal when one tree was copied to another file system: content, attributes
    /// and mtimes, but not what a file system chooses itself.
    fn default() -> Self {
        Self {
            content: true,
            xattrs: true,
            atime: false,
            ctime: false,
            mtime: true,
            sparse: false,
            blocks: false,
            inodes: false,
            flags: false,
            dir_sizes: false,
            exclude: vec!["lost+found".into()],
        }
    }
}

impl CaptureOptions {
    /// What has to be equal when one image is read by two implementations: all but access times.
    pub fn same_image() -> Self {
        Self {
            content: true,
            xattrs: true,
            atime: false,
            ctime: true,
            mtime: true,
            sparse: true,
            blocks: true,
            inodes: true,
            flags: true,
            dir_sizes: true,
            exclude: Vec::new(),
        }
    }
}

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

/// One entry. Optional fields are `None` where they were not asked for or do not apply.
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
    /// Hash of the content of a file, see [`content_hash`].
    pub content: Option<String>,
    /// Extended attributes: name to value (escaped when short, else length and hash).
    pub xattrs: BTreeMap<String, String>,
    /// The first path (in order) of the same inode, for files with several links.
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

/// A snapshot: path below the captured directory (`""` is itself; escaped so that any bytes fit) to
/// entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// All entries by path.
    pub entries: BTreeMap<String, Entry>,
}
