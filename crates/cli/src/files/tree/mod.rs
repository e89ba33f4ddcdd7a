//! One interface to read and make files, of the host and of volumes. `cp` and `tar` work on it, in
//! either direction.

mod ahead;
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

pub(super) use ahead::Ahead;
pub(super) use entered::Entered;
pub(super) use host::{Host, host_umask};
pub(super) use inside::Inside;
pub(super) use source::Source;

use super::meter::Meter;
use crate::failure::{Code, Failure, Result};

/// The kind of a file.
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

    /// Its name in JSON.
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

    /// Its letter in ls(1).
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

/// The attributes of a file; a symbolic link is not followed.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// The 12 mode bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Size, bytes.
    pub(super) size: u64,
    /// It takes less space than its size: it has holes, or is stored compressed.
    pub(super) is_sparse: bool,
    pub(super) links: u64,
    /// The identity of the file, the same for all its names in one tree.
    pub(super) id: (u64, u64),
    pub(super) modified: SystemTime,
    pub(super) accessed: SystemTime,
}

/// An extended attribute: name and value.
pub(super) type Xattr = (OsString, Vec<u8>);

/// Deepest nesting of directories: each level takes memory, and on the host a descriptor.
const DEPTH_MOST: usize = 8000;

/// Checks the depth of a path.
///
/// # Errors
/// The path leads through too many directories.
pub(super) fn check_depth(path: &Path) -> Result {
    // A name takes two bytes or more with its slash.
    if path.as_os_str().len() <= 2 * DEPTH_MOST || path.iter().count() <= DEPTH_MOST {
        return Ok(());
    }
    let begins: String = path.to_string_lossy().chars().take(100).collect();
    let message = format!("{begins}… is below more than {DEPTH_MOST} directories");
    Err(Failure::new(Code::Usage, message))
}

/// Whether an attribute gives power, as `security.capability` does: it is kept only together with
/// the owner.
pub(super) fn needs_owner(xattr: &OsStr) -> bool {
    let name = xattr.as_encoded_bytes();
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Whether an attribute could not be set for lack of room, or because of its size: other file
/// systems hold larger attributes, or more.
fn has_no_room(errno: i32) -> bool {
    use libc::{E2BIG, EDQUOT, EINVAL, ENOSPC, ERANGE};
    matches!(errno, E2BIG | EDQUOT | EINVAL | ENOSPC | ERANGE)
}

/// Set-group-id.
pub(super) const SET_GID: u32 = 0o2000;

/// A mode without the bits that give power. The sticky bit of a directory restricts, and stays, as
/// with cp(1).
pub(super) fn tame(kind: Kind, mode: u32) -> u32 {
    match kind {
        Kind::Dir => mode & 0o1777,
        _ => mode & 0o777,
    }
}

/// The permissions of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permissions {
    /// The permissions of a new file created with this mode: without set-user-id and set-group-id,
    /// less the umask.
    New(u32),
    /// These 12 bits; on the host the bits with power only if the copy has its owner.
    Kept(u32),
}

impl Permissions {
    pub(super) fn mode(self) -> u32 {
        match self {
            Permissions::New(mode) | Permissions::Kept(mode) => mode,
        }
    }
}

/// The attributes that a copy gets when its content is complete; `None` and an empty list change
/// nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Finish {
    pub(super) owner: Option<(u32, u32)>,
    /// Not for symbolic links.
    pub(super) permissions: Option<Permissions>,
    pub(super) modified: Option<SystemTime>,
    pub(super) accessed: Option<SystemTime>,
    pub(super) xattrs: Vec<Xattr>,
    /// [`KEPT_FLAGS`], of files and directories. They are set last: some of them forbid changes.
    pub(super) flags: Option<u32>,
}

/// Inode flags that copies keep: those that chattr(1) changes on ext4, except those about how
/// content is stored on its volume (`extents`, `casefold`, `dax`).
pub(super) const KEPT_FLAGS: u32 = 0x2003_c0ff;
/// The kept flags that stop even the administrator from changing a file: `immutable` and `append
/// only`.
pub(super) const GUARDS: u32 = 0x30;

/// The content of a file that is being read.
pub(super) trait Content {
    /// The next run of data at or after `from`, in bytes.
    fn next_data(&self, from: u64) -> Result<Option<Range<u64>>>;
    /// Reads from offset `at`; 0 at the end.
    fn read_at(&self, buf: &mut [u8], at: u64) -> Result<usize>;
}

/// Most runs of data of a file: a damaged map that names its blocks again and again has no end of
/// them.
const MAX_RUNS: usize = 1 << 20;

/// All runs of data of a file of `size` bytes; an empty run at the end stands for a hole there. To
/// be called before anything is read: the kernel reports read-ahead pages as data.
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
                "if the file is meant to be like that, mount the volume and copy it from there; \
                 else run e2fsck -f",
            ));
        }
    }
    // The file ends with a hole.
    if at < size {
        runs.push(size..size);
    }
    Ok(runs)
}

/// A file that was made, or a directory that was there, whatever becomes of its name.
pub(super) trait Made {
    /// Its attributes now. `path` is its whole path, for messages.
    fn item(&self, path: &Path) -> Result<Item>;
    /// Sets its attributes; reports to `meter` those that it could not have.
    fn finish(&self, path: &Path, with: &Finish, meter: &mut Meter) -> Result;
}

/// A named file, with symbolic links followed.
pub(super) struct Named {
    pub(super) item: Item,
    /// The content of a file, or of a device or pipe that is read like one.
    pub(super) content: Option<Box<dyn Content>>,
}

/// The file at the end of a symbolic link.
pub(super) struct Followed {
    pub(super) tree: Box<dyn Tree>,
    /// Its path below the tree's base; empty for a directory, which is the base.
    pub(super) path: PathBuf,
    pub(super) item: Item,
}

/// The content of a file that is being made.
pub(super) trait Sink: Made {
    /// Writes all of `bytes` at offset `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result;
    /// Sets the size, for a hole at the end.
    fn set_len(&self, size: u64) -> Result;
}

/// The files below a directory, the base, of the host or of a volume. Paths are relative to the
/// base and contain only names; the empty path is the base. No symbolic link is followed, neither
/// on the way nor at the end, except by [`follow`](Tree::follow): no link in the tree, nor one put
/// there meanwhile, leads elsewhere.
pub(super) trait Tree {
    /// The whole path, for messages.
    fn shown(&self, path: &Path) -> PathBuf;
    /// The attributes of `path`; `None` if it does not exist.
    fn item(&self, path: &Path) -> Result<Option<Item>>;
    /// The names in a directory, in the order of their bytes.
    fn names(&self, dir: &Path) -> Result<Vec<OsString>>;
    /// Whether each directory has one name in an undamaged tree. On the host, mounts give some of
    /// them more.
    fn names_dirs_once(&self) -> bool;
    /// The target of a symbolic link.
    fn link(&self, path: &Path) -> Result<PathBuf>;
    /// The file to which the symbolic link at `path` leads at last, wherever it is.
    ///
    /// # Errors
    /// The link is broken.
    fn follow(&self, path: &Path) -> Result<Followed>;
    /// Extended attributes.
    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>>;
    /// The [`KEPT_FLAGS`] of a file or directory; `None` where there are no flags.
    fn flags(&self, path: &Path, item: &Item) -> Result<Option<u32>>;
    /// Opens a file for reading. It must be the one that `item` describes.
    fn open(&self, path: &Path, item: &Item) -> Result<Box<dyn Content>>;

    /// Makes a directory.
    fn make_dir(&self, path: &Path) -> Result;
    /// Creates a file, which must not exist.
    fn make_file(&self, path: &Path, permissions: Permissions) -> Result<Box<dyn Sink>>;
    /// Makes a symbolic link.
    fn make_link(&self, target: &Path, path: &Path) -> Result;
    /// Creates a pipe, socket or device; returns whether that is permitted.
    fn make_node(&self, path: &Path, node: Node, permissions: Permissions) -> Result<bool>;
    /// Gives the file at `path` another name.
    fn hard_link(&self, path: &Path, name: &Path) -> Result;
    /// Holds a file that was just made, or a directory that was there.
    ///
    /// # Errors
    /// Something else is there by now.
    fn hold(&self, path: &Path, what: Kind) -> Result<Box<dyn Made>>;
    /// Removes a file that is not a directory.
    fn remove(&self, path: &Path) -> Result;
}
