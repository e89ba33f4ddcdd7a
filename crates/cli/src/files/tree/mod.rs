//! One way to read and to make files, of the host and of volumes.

mod entered;
mod host;
mod host_dir;
mod host_item;
mod host_made;
mod inside;
mod source;
mod way;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stetfs::low::FileType;
use stetfs::{Metadata, Node};

pub(super) use entered::Entered;
pub(super) use host::Host;
pub(super) use inside::Inside;
pub(super) use source::Source;

use super::meter::Meter;
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

/// Directories that lie in each other at most: each takes memory, and on the host a descriptor.
const DEPTH_MOST: usize = 8000;

/// # Errors
/// A path through too many directories.
pub(super) fn check_depth(path: &Path) -> Result {
    // A name takes two bytes with its slash.
    if path.as_os_str().len() <= 2 * DEPTH_MOST || path.iter().count() <= DEPTH_MOST {
        return Ok(());
    }
    let begins: String = path.to_string_lossy().chars().take(100).collect();
    let message = format!("{begins}… lies in more than {DEPTH_MOST} directories");
    Err(Failure::new(Code::Usage, message))
}

/// Whether an attribute gives power, as of `security.capability`: it is kept with the owner only.
pub(super) fn needs_owner(xattr: &OsStr) -> bool {
    let name = xattr.as_encoded_bytes();
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Whether an attribute could not be set because there is no room for it, or not for one like it:
/// other file systems hold larger ones, or more.
fn has_no_room(errno: i32) -> bool {
    use libc::{E2BIG, EDQUOT, EINVAL, ENOSPC, ERANGE};
    matches!(errno, E2BIG | EDQUOT | EINVAL | ENOSPC | ERANGE)
}

/// Set-group-id.
pub(super) const SET_GID: u32 = 0o2000;

/// A mode without what has power. That directories are sticky takes some away, and stays, as of
/// cp(1).
pub(super) fn tame(kind: Kind, mode: u32) -> u32 {
    match kind {
        Kind::Dir => mode & 0o1777,
        _ => mode & 0o777,
    }
}

/// The attributes and files that a copy may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permissions {
    /// As something new has it that is asked to have this: without set-user-id and set-group-id,
    /// less the umask.
    New(u32),
    /// These 12 bits; on the host those that have power only if the copy has its owner.
    Kept(u32),
}

impl Permissions {
    pub(super) fn mode(self) -> u32 {
        match self {
            Permissions::New(mode) | Permissions::Kept(mode) => mode,
        }
    }
}

/// What a copy is given when its content is there; `None` and an empty list leave things as they
/// are.
#[derive(Clone, Debug, Default)]
pub(super) struct Finish {
    pub(super) owner: Option<(u32, u32)>,
    /// Not of symbolic links.
    pub(super) permissions: Option<Permissions>,
    pub(super) modified: Option<SystemTime>,
    pub(super) accessed: Option<SystemTime>,
    pub(super) xattrs: Vec<Xattr>,
    /// [`KEPT_FLAGS`], of files and directories. They come last: by some nothing can be changed.
    pub(super) flags: Option<u32>,
}

/// Inode flags that copies keep: what chattr(1) sets and clears on ext4, but for those that say how
/// content lies on its volume (`extents`, `casefold`, `dax`).
pub(super) const KEPT_FLAGS: u32 = 0x2003_c0ff;
/// Of them, those that keep even the administrator from changing a file: `immutable` and `append
/// only`.
pub(super) const GUARDS: u32 = 0x30;

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
fn runs(content: &dyn Content, size: u64) -> Result<Vec<Range<u64>>> {
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

/// Something that was made, or a directory that was there, whatever becomes of its name.
pub(super) trait Made {
    /// Its attributes now. `path` is its whole path, for messages.
    fn item(&self, path: &Path) -> Result<Item>;
    /// Gives it what it is to have; tells `meter` what it could not have.
    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result;
}

/// Something that was named itself, symbolic links followed.
pub(super) struct Named {
    pub(super) item: Item,
    /// The content of a file, or of what is read as one.
    pub(super) content: Option<Box<dyn Content>>,
}

/// The content of a file that is made.
pub(super) trait Sink: Made {
    /// Writes all of `bytes` from `at` on.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result;
    /// Sets the size, which a hole at the end needs.
    fn set_len(&self, size: u64) -> Result;
}

/// Files below a directory, the base, of the host or of a volume. Paths lead on from there, by
/// names only; an empty one is the base. No symbolic link is followed, neither on the way nor at
/// the end: whatever is in a tree, and whatever others put there meanwhile, leads nowhere else.
pub(super) trait Tree {
    /// The whole path, for messages.
    fn shown(&self, path: &Path) -> PathBuf;
    /// What is known of `path`; `None` if there is nothing.
    fn item(&self, path: &Path) -> Result<Option<Item>>;
    /// The names in a directory, in the order of their bytes.
    fn names(&self, dir: &Path) -> Result<Vec<OsString>>;
    /// Each directory has one name, if nothing is damaged. On the host, mounts give it more.
    fn names_dirs_once(&self) -> bool;
    /// Where a symbolic link leads.
    fn link(&self, path: &Path) -> Result<PathBuf>;
    /// Extended attributes.
    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>>;
    /// The [`KEPT_FLAGS`] of a file or directory; `None` where there are no flags.
    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>>;
    /// Opens a file for reading, which must be the one that `item` tells of.
    fn open(&self, path: &Path, item: &Item) -> Result<Box<dyn Content>>;

    /// Makes a directory.
    fn make_dir(&self, path: &Path) -> Result;
    /// Makes a file, which must not be there.
    fn make_file(&self, path: &Path, permissions: Permissions) -> Result<Box<dyn Sink>>;
    /// Makes a symbolic link.
    fn make_link(&self, target: &Path, path: &Path) -> Result;
    /// Makes a pipe, socket or device; says whether that is permitted.
    fn make_node(&self, path: &Path, node: Node, permissions: Permissions) -> Result<bool>;
    /// Gives the file at `path` another name.
    fn hard_link(&self, path: &Path, name: &Path) -> Result;
    /// Holds what was made just now, or a directory that was there.
    ///
    /// # Errors
    /// It is something else by now.
    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>>;
    /// Removes something that is no directory.
    fn remove(&self, path: &Path) -> Result;
}
