//! Snapshots of directory trees as a user sees them, and their differences.
//!
//! A [`Tree`] holds everything that POSIX calls show of every entry below a directory. Two
//! snapshots of one file system, read by different implementations, must be equal.

mod capture;
mod diff;
mod entry;

pub use capture::{content_hash, escape, xattr_value};
pub use diff::diff;
pub use entry::{Entry, Kind, Time, Tree};

/// The fields of a snapshot beside the basic ones (type, mode, owner, links, size, mtime).
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
    /// The data and the holes of files, by SEEK_DATA and SEEK_HOLE.
    pub sparse: bool,
    /// Blocks allocated (`st_blocks`).
    pub blocks: bool,
    /// Inode numbers.
    pub inodes: bool,
    /// Inode flags (`FS_IOC_GETFLAGS`) of files and directories.
    pub flags: bool,
    /// Sizes of directories.
    pub dir_sizes: bool,
    /// Paths (relative, escaped as in the snapshot) that are left out with everything below them.
    pub exclude: Vec<String>,
}

impl Default for CaptureOptions {
    /// The fields that must be equal after a copy to another file system: content, attributes and
    /// mtimes, but not those that a file system chooses itself.
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
    /// The fields that must be equal if two implementations read one image: all but access times.
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
