//! One way to read and to make files, of the host and of volumes.

mod entered;
mod host;
mod inside;

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stetfs::low::FileType;
use stetfs::{Metadata, Node};

pub(super) use entered::Entered;
pub(super) use host::Host;
pub(super) use inside::Inside;

use crate::failure::{Code, Failure, Result};

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Node(Node),
}

impl Kind {
    pub(super) fn of(metadata: &Metadata) -> Kind {
        let (major, minor) = metadata.device();
        match metadata.file_type() {
            FileType::Regular => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Node(Node::Fifo),
            FileType::Socket => Kind::Node(Node::Socket),
            FileType::CharDevice => Kind::Node(Node::CharDevice(major, minor)),
            FileType::BlockDevice => Kind::Node(Node::BlockDevice(major, minor)),
        }
    }

    pub(super) fn is_device(self) -> bool {
        matches!(
            self,
            Kind::Node(Node::CharDevice(..) | Node::BlockDevice(..))
        )
    }

    /// For programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dir => "directory",
            Kind::Symlink => "symlink",
            Kind::Node(Node::Fifo) => "fifo",
            Kind::Node(Node::Socket) => "socket",
            Kind::Node(Node::CharDevice(..)) => "char-device",
            Kind::Node(Node::BlockDevice(..)) => "block-device",
        }
    }

    /// As ls(1) shows it.
    pub(super) fn letter(self) -> char {
        match self {
            Kind::File => '-',
            Kind::Dir => 'd',
            Kind::Symlink => 'l',
            Kind::Node(Node::Fifo) => 'p',
            Kind::Node(Node::Socket) => 's',
            Kind::Node(Node::CharDevice(..)) => 'c',
            Kind::Node(Node::BlockDevice(..)) => 'b',
        }
    }
}

/// What is known of something; of a symbolic link itself.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// 12 bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Bytes.
    pub(super) size: u64,
    pub(super) links: u64,
    /// The same for all names of one file, in one tree.
    pub(super) id: (u64, u64),
    pub(super) modified: SystemTime,
    pub(super) accessed: SystemTime,
}

/// An extended attribute: name and value.
pub(super) type Xattr = (OsString, Vec<u8>);

/// What a copy is given when its content is there; `None` and an empty list leave things as they
/// are.
#[derive(Clone, Debug, Default)]
pub(super) struct Finish {
    pub(super) owner: Option<(u32, u32)>,
    /// 12 bits; not of symbolic links.
    pub(super) mode: Option<u32>,
    pub(super) modified: Option<SystemTime>,
    pub(super) accessed: Option<SystemTime>,
    pub(super) xattrs: Vec<Xattr>,
}

/// The content of a file that is read.
pub(super) trait Content {
    /// The next run of data at or after `from`, bytes.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>>;
    /// Reads from `at` on; 0 at the end.
    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize>;
}

/// Runs of data that a file may have: a map that names its blocks again and again has no end of
/// them.
const MAX_RUNS: usize = 1 << 20;

/// All runs of data of a file of `size` bytes; an empty one at the end stands for a hole there. To
/// be asked for before anything is read: the kernel takes what it has read ahead for data.
pub(super) fn runs(content: &dyn Content, size: u64) -> Result<Vec<Range<u64>>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(run) = content.next_data(at)? {
        let run = run.start..run.end.min(size);
        if run.is_empty() {
            break;
        }
        at = run.end;
        runs.push(run);
        if runs.len() > MAX_RUNS {
            let message = format!("a file of more than {MAX_RUNS} pieces with holes between them");
            return Err(Failure::new(Code::Volume, message).hint(
                "if it is to be so, mount the volume and copy it from there; else run e2fsck -f",
            ));
        }
    }
    // The end of a file that ends with a hole.
    if at < size {
        runs.push(size..size);
    }
    Ok(runs)
}

/// The content of a file that is made.
pub(super) trait Sink {
    /// Writes all of `bytes` from `at` on.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result;
    /// Sets the size, which a hole at the end needs.
    fn set_len(&self, size: u64) -> Result;
}

/// Files, of the host or of a volume. Symbolic links at the end of a path are not followed.
pub(super) trait Tree {
    /// What is known of `path`; `None` if there is nothing.
    fn item(&self, path: &Path) -> Result<Option<Item>>;
    /// What `path` leads to is a directory.
    fn is_dir(&self, path: &Path) -> bool;
    /// The names in a directory, in the order of their bytes.
    fn names(&self, dir: &Path) -> Result<Vec<OsString>>;
    /// Each directory has one name, if nothing is damaged. On the host, mounts give it more.
    fn names_dirs_once(&self) -> bool;
    /// Where a symbolic link leads.
    fn link(&self, path: &Path) -> Result<PathBuf>;
    /// Extended attributes.
    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> Result<Box<dyn Content>>;

    /// Makes a directory.
    fn make_dir(&self, path: &Path) -> Result;
    /// Makes a file, which must not be there.
    fn make_file(&self, path: &Path) -> Result<Box<dyn Sink>>;
    /// Makes a symbolic link.
    fn make_link(&self, target: &Path, path: &Path) -> Result;
    /// Makes a pipe, socket or device; says whether that is permitted.
    fn make_node(&self, path: &Path, node: Node) -> Result<bool>;
    /// Gives the file at `path` another name.
    fn hard_link(&self, path: &Path, name: &Path) -> Result;
    /// Gives what was made what it is to have.
    fn finish(&self, path: &Path, kind: Kind, with: &Finish) -> Result;
    /// Removes something that is no directory.
    fn remove(&self, path: &Path) -> Result;
    /// Removes a directory with all that is in it, or a file.
    fn remove_all(&self, path: &Path) -> Result;
}
